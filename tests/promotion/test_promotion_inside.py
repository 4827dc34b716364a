"""A shipped test runs in a process elsewhere, and its outcome is what pytest there made of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from t5x_harness.promotion.packing import listed_files, pack
from t5x_harness.promotion.shipped import ShippedOutcome, ShippedOutcomeError, warning_from_json

MODULE = """
import os
import pytest

@pytest.fixture
def broken():
    raise RuntimeError("no bucket")

class TestIt:
    def test_passes(self, greeting, record_property, tmp_path):
        record_property("speed", 3)
        print("hello from the job")
        assert greeting == "hi" and not os.path.exists("secret.key")

def test_fails(greeting):
    assert greeting == "ho"

def test_skips():
    pytest.skip("not on this TPU")

@pytest.mark.xfail(reason="known")
def test_xfails():
    assert False

@pytest.mark.parametrize("n", [1, 2])
def test_many(n):
    assert n

def test_errs(broken):
    pass
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    (root / "test_it.py").write_text(MODULE)
    (root / "test_unimportable.py").write_text("import no_such_module\n\ndef test_it(): pass\n")
    (root / "conftest.py").write_text("import pytest\n\n@pytest.fixture\ndef greeting(): return 'hi'\n")
    (root / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    (root / "secret.key").write_text("mine")
    return root


def ship(
    project: Path, nodeid: str, folder: Path, digest: str | None = None, *options: str
) -> subprocess.CompletedProcess[str]:
    module = project / nodeid.partition("::")[0]
    archive = pack(project, listed_files(project, module, settings=project / "pytest.ini"))
    (folder / "test.tar.gz").write_bytes(archive.content)
    command = [
        sys.executable, "-P", "-m", "t5x_harness.promotion.inside", f"--archive={folder / 'test.tar.gz'}",
        f"--sha256={digest or archive.digest}", f"--outcome={folder / 'new' / 'outcome.json'}", "--ini=pytest.ini",
        *options, nodeid,
    ]  # fmt: skip
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def outcome_of(project: Path, nodeid: str, folder: Path) -> ShippedOutcome:
    done = ship(project, nodeid, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return ShippedOutcome.from_text((folder / "new/outcome.json").read_text())


@pytest.mark.parametrize(
    ("nodeid", "outcomes"),
    [
        ("test_it.py::TestIt::test_passes", ["passed", "passed", "passed"]),
        ("test_it.py::test_fails", ["passed", "failed", "passed"]),
        ("test_it.py::test_skips", ["passed", "skipped", "passed"]),
        ("test_it.py::test_xfails", ["passed", "skipped", "passed"]),
        ("test_it.py::test_many[2]", ["passed", "passed", "passed"]),
        ("test_it.py::test_errs", ["failed", "passed"]),
    ],
)
def test_every_phase_is_reported(project: Path, tmp_path: Path, nodeid: str, outcomes: list[str]) -> None:
    outcome = outcome_of(project, nodeid, tmp_path)
    assert outcome.nodeid == nodeid
    assert [report["outcome"] for report in outcome.reports] == outcomes
    assert {report["nodeid"] for report in outcome.reports} == {nodeid}
    assert outcome.problem == ""
    assert {"python", "pytest", "t5x-harness"} <= set(outcome.versions)


def test_output_and_properties_come_along(project: Path, tmp_path: Path) -> None:
    outcome = outcome_of(project, "test_it.py::TestIt::test_passes", tmp_path)
    call = next(report for report in outcome.reports if report["when"] == "call")
    assert call["user_properties"] == [["speed", 3]]
    assert ["Captured stdout call", "hello from the job\n"] in call["sections"]


def test_a_module_that_cannot_be_imported_says_why(project: Path, tmp_path: Path) -> None:
    outcome = outcome_of(project, "test_unimportable.py::test_it", tmp_path)
    assert outcome.reports == ()
    assert "ModuleNotFoundError: No module named 'no_such_module'" in outcome.problem


def test_an_archive_that_is_not_the_one_that_was_sent_is_not_run(project: Path, tmp_path: Path) -> None:
    done = ship(project, "test_it.py::test_fails", tmp_path, digest="00")
    assert done.returncode == 2
    assert "and 00 was sent: something replaced it" in done.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text, "the report of the job cannot be read: ") for text in ("", "[]", '{"version": 2}')),
        (
            '{"version": 99}',
            "the report of the job has version 99, and this t5x-harness reads version 2: it differs from the image's",
        ),
    ],
)
def test_what_is_no_outcome_is_said(text: str, message: str) -> None:
    with pytest.raises(ShippedOutcomeError, match=message):
        ShippedOutcome.from_text(text)


DEVICES = """
import warnings

import pytest

def test_uses():
    import jax
    jax.devices()

def test_uses_none():
    pass

def test_asks_for_what_is_not_there():
    import jax
    jax.config.update("jax_platforms", "no_such_platform")

def test_warns():
    class OwnWarning(UserWarning):
        pass
    warnings.warn("soon", FutureWarning)
    warnings.warn(OwnWarning("mine"))
"""


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("devices")
    (root / "test_devices.py").write_text(DEVICES)
    (root / "pytest.ini").write_text("[pytest]\n")
    return root


def test_devices_come_along(devices: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=3")
    outcome = outcome_of(devices, "test_devices.py::test_uses", tmp_path)
    assert (outcome.devices, outcome.platform, outcome.platform_set) == ("3 x cpu", "cpu", True)
    assert not outcome.ran_on.fell_back
    assert outcome.ran_on.about(tpu=True, emulated=True) == "3 x cpu: the emulated Vertex AI has no TPU"
    assert outcome.ran_on.about(tpu=True, emulated=False) == (
        "3 x cpu: nothing ran on the TPU, as JAX was set to take the CPU"
    )
    assert outcome.about_versions().startswith("python 3.")


def test_a_cpu_that_nobody_asked_for_is_a_fall_back(
    devices: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("JAX_PLATFORMS", "JAX_PLATFORM_NAME"):
        monkeypatch.delenv(name, raising=False)
    outcome = outcome_of(devices, "test_devices.py::test_uses", tmp_path)
    assert (outcome.platform, outcome.platform_set, outcome.ran_on.fell_back) == ("cpu", False, True)
    assert outcome.ran_on.about(tpu=True, emulated=False).endswith(": nothing ran on the TPU, as JAX found no TPU")


def test_a_test_without_jax_looked_at_no_device(devices: Path, tmp_path: Path) -> None:
    outcome = outcome_of(devices, "test_devices.py::test_uses_none", tmp_path)
    assert (outcome.devices, outcome.platform, outcome.ran_on.fell_back) == ("", "", False)
    assert outcome.ran_on.about(tpu=True, emulated=False) == "not looked at: the test imported no JAX"


def test_devices_that_cannot_be_had_cost_no_outcome(devices: Path, tmp_path: Path) -> None:
    outcome = outcome_of(devices, "test_devices.py::test_asks_for_what_is_not_there", tmp_path)
    assert not outcome.failed
    assert outcome.ran_on.about(tpu=True, emulated=False).startswith("none: ")
    assert "no_such_platform" in outcome.devices


def test_warnings_come_along(devices: Path, tmp_path: Path) -> None:
    outcome = outcome_of(devices, "test_devices.py::test_warns", tmp_path)
    ours = [warning_from_json(value, devices) for value in outcome.warnings]
    line = DEVICES.splitlines().index('    warnings.warn("soon", FutureWarning)') + 1
    assert [(each.category, str(each.message), each.filename, each.lineno) for each in ours] == [
        (FutureWarning, "soon", str(devices / "test_devices.py"), line),
        (UserWarning, "OwnWarning: mine", str(devices / "test_devices.py"), line + 1),
    ]


def test_what_a_live_test_prints_is_in_the_log_and_not_in_its_report(project: Path, tmp_path: Path) -> None:
    done = ship(project, "test_it.py::TestIt::test_passes", tmp_path, None, "--live")
    assert done.returncode == 0, done.stderr
    assert "hello from the job" in done.stdout
    outcome = ShippedOutcome.from_text((tmp_path / "new" / "outcome.json").read_text())
    assert [report["outcome"] for report in outcome.reports] == ["passed"] * 3
    assert [report["sections"] for report in outcome.reports] == [[], [], []]
