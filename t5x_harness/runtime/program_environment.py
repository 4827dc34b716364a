"""The environment of programs that import T5X: which T5X they find, and on which slice.

It consists of variables alone. A folder at the start of PYTHONPATH has a ``sitecustomize`` that sets up each
interpreter when it starts; a folder at the start of PATH has a ``python`` and ``python3`` that put that folder back if
a script has set its own PYTHONPATH.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from t5x_harness.runtime.choice import Runtime, folder_to_import_from
from t5x_harness.runtime.import_hooks import BOOTSTRAP_PATH
from t5x_harness.slices.devices import device_environment
from t5x_harness.slices.pod import Pod
from t5x_harness.slices.slice import Slice
from t5x_harness.variables import RUNTIME_FOLDER_VARIABLE, RUNTIME_VARIABLE, SLICE_VARIABLE

_PROGRAMS = os.path.join(BOOTSTRAP_PATH, "programs")


def program_environment(
    slice: Slice | None,
    runtime: Runtime,
    preference: str = "auto",
    environment: Mapping[str, str] | None = None,
    pod: Pod | None = None,
) -> dict[str, str]:
    """Returns the whole environment that a command runs in.

    Args:
      slice: the slice to emulate; None leaves devices and meshes as they are.
      runtime: the T5X that was found here.
      preference: ``auto`` lets each process look again, because its import path may differ. Processes that find no T5X
        use the one that was found here.
      environment: what to start from; this process's own by default.
      pod: the process's place, if it is one of the slice's hosts and not all of them.
    """
    base = dict(os.environ if environment is None else environment)
    processes = pod.processes if pod else 1
    return {
        **base,
        **({**device_environment(slice, base, processes=processes), SLICE_VARIABLE: slice.name} if slice else {}),
        **(pod.variables() if pod else {}),
        RUNTIME_VARIABLE: runtime.kind if preference != "auto" else "auto",
        RUNTIME_FOLDER_VARIABLE: folder_to_import_from(runtime) or "",
        "PYTHONPATH": _in_front(BOOTSTRAP_PATH, base.get("PYTHONPATH", "")),
        "PATH": _in_front(_PROGRAMS, base.get("PATH", os.defpath)),
    }


def _in_front(folder: str, path: str) -> str:
    """Returns a path list that begins with this folder."""
    return os.pathsep.join([folder, *(p for p in path.split(os.pathsep) if p != folder)]) if path else folder
