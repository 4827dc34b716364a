"""The doctor says how /gcs is had, and what refuses it."""

from __future__ import annotations

import pytest

from t5x_harness.doctor import Diagnosis, Environment
from t5x_harness.doctor import fuse as check
from t5x_harness.google.gcs_mount import Mount, Way
from t5x_harness.runtime.choice import Runtime

NOTHING = Environment((), Runtime("embedded", "0.1.0", "/lib", "no T5X is installed"))


def diagnosis(found: Mount, monkeypatch: pytest.MonkeyPatch, *, there: bool = False) -> Diagnosis:
    monkeypatch.setattr(check, "probe", lambda: found)
    monkeypatch.setattr(check.os.path, "isdir", lambda path: there)
    return check.gcs_paths.run(NOTHING)


def test_a_machine_that_allows_all(monkeypatch: pytest.MonkeyPatch) -> None:
    found = diagnosis(Mount(Way.NAMESPACE), monkeypatch)
    assert (found.code, found.status) == ("ENV10", "ok")
    assert found.summary == "mounted for each run alone; also as FUSE has it"


def test_a_machine_without_fuse_and_with_a_gcs(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = Mount(Way.NAMESPACE, None, "opening /dev/fuse: Permission denied")
    found = diagnosis(allowed, monkeypatch, there=True)
    assert found.status == "ok"
    assert found.summary == (
        "mounted for each run alone over the /gcs of this machine; "
        "not as FUSE has it (opening /dev/fuse: Permission denied)"
    )


def test_a_machine_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "namespaces of users and mounts: Operation not permitted"
    found = diagnosis(Mount(Way.REWRITING, reason, reason), monkeypatch)
    assert (found.status, found.summary) == (
        "warning",
        "patched in runs, and rewritten in the words and variables of commands",
    )
    [finding] = found.findings
    assert finding.message.startswith(
        f"runs get no /gcs of their own ({reason}): T5X finds such paths, but native code"
    )
    assert "user.max_user_namespaces" in finding.fix
    assert "--security-opt seccomp=unconfined" in finding.fix
