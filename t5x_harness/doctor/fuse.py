"""How runs see ``/gcs`` on this machine."""

from __future__ import annotations

import os

from t5x_harness.doctor.check import Looked, check, looked, warning
from t5x_harness.doctor.environment import Environment
from t5x_harness.google.gcs_mount import Way, probe

_ALLOW_DOCKER = "in Docker, run the container with --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
_ALLOW = f"sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0 user.max_user_namespaces=10000; {_ALLOW_DOCKER}"


@check(
    "ENV10",
    "/gcs paths",
    why=(
        "Runs see `/gcs` as a mount of their own, which needs user namespaces. Where the kernel or a container forbids "
        "these, T5X finds such paths because its own file functions are patched, but native code that the user's "
        "modules hand such a path to may not. The warning goes away with the command that it prints, or, in Docker, "
        "with two security options."
    ),
)
def gcs_paths(_environment: Environment) -> Looked:
    """Mounts ``/gcs`` in a process of its own, which ends at once."""
    found = probe()
    if found.way is Way.REWRITING:
        return looked(
            "patched in runs, and rewritten in the words and variables of commands",
            warning(
                f"runs get no /gcs of their own ({found.refused}): T5X finds such paths, but native code that is"
                " given one by the user's own modules may not",
                _ALLOW,
            ),
        )
    over = " over the /gcs of this machine" if os.path.isdir("/gcs") else ""
    fuse = f"; not as FUSE has it ({found.fuse_refused})" if found.fuse_refused else "; also as FUSE has it"
    return looked(f"mounted for each run alone{over}{fuse}")
