"""A shipped test is packed with listed files, unpacked only into its folder, and reported as pytest saw it there."""

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from t5x_harness.promotion import shipped
from t5x_harness.promotion.shipped import (
    PackingError,
    ShippedOutcome,
    ShippedOutcomeError,
    digest_of_archive,
    listed_files,
    pack,
    unpack,
    warning_from_json,
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name in (
        "conftest.py", "pyproject.toml", "secret.key", ".env", "src/tasks.py", "data/a.tsv", "data/deep/b.tsv",
        "tests/conftest.py", "tests/test_alone.py", "tests/other/conftest.py",
        "tests/pkg/__init__.py", "tests/pkg/helpers.py", "tests/pkg/sub/__init__.py", "tests/pkg/sub/test_deep.py",
        "tests/pkg/sub/__pycache__/test_deep.cpython-311.pyc", "tests/pkg/notes.txt",
    ):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"# {name}\n")
    return root


def names(root: Path, module: str, *globs: str) -> list[str]:
    files = listed_files(root, root / module, globs, root / "pyproject.toml")
    with tarfile.open(fileobj=io.BytesIO(pack(root, files)), mode="r:gz") as archive:
        return archive.getnames()


def test_a_module_takes_its_conftests_and_the_settings_along(project: Path) -> None:
    assert names(project, "tests/test_alone.py") == [
        "conftest.py", "pyproject.toml", "tests/conftest.py", "tests/test_alone.py",
    ]  # fmt: skip


def test_a_module_in_a_package_takes_the_whole_packages_python_files(project: Path) -> None:
    assert names(project, "tests/pkg/sub/test_deep.py") == [
        "conftest.py", "pyproject.toml", "tests/conftest.py", "tests/pkg/__init__.py", "tests/pkg/helpers.py",
        "tests/pkg/sub/__init__.py", "tests/pkg/sub/test_deep.py",
    ]  # fmt: skip


def test_listed_globs_are_added(project: Path) -> None:
    found = names(project, "tests/test_alone.py", "data/**/*", "src/*.py")
    assert {"data/a.tsv", "data/deep/b.tsv", "src/tasks.py"} <= set(found)
    assert not {"secret.key", ".env"} & set(found)


@pytest.mark.parametrize(
    ("glob", "message"),
    [
        ("../*.py", r"files: '\.\./\*\.py' leads out of pytest's root folder; globs are relative to it"),
        ("/etc/*", r"files: '/etc/\*' leads out of pytest's root folder"),
        ("*.csv", r"files: '\*.csv' matches no file below "),
        ("data", r"files: 'data' matches no file below .*; for all of a folder write data/\*\*/\*"),
    ],
)
def test_a_glob_that_gives_nothing_or_leads_out_is_refused(project: Path, glob: str, message: str) -> None:
    with pytest.raises(PackingError, match=message):
        names(project, "tests/test_alone.py", glob)


def test_a_link_that_leads_out_is_refused(project: Path) -> None:
    (project.parent / "private.txt").write_text("mine")
    (project / "data/link.tsv").symlink_to(project.parent / "private.txt")
    with pytest.raises(PackingError, match=r"a file to ship, .*link.tsv, lies outside pytest's root folder"):
        names(project, "tests/test_alone.py", "data/*.tsv")


def test_a_test_outside_the_root_folder_is_refused(project: Path) -> None:
    with pytest.raises(PackingError, match=r"the test's module, .*, lies outside pytest's root folder"):
        listed_files(project / "src", project / "tests/test_alone.py")


def test_what_is_too_large_names_the_largest(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "LIMIT", 2**20)
    (project / "data/a.tsv").write_bytes(b"0" * (2**20 + 1))
    with pytest.raises(PackingError, match=r"have 1 MiB, and 1 MiB is the limit; the largest is data/a.tsv: put it"):
        names(project, "tests/test_alone.py", "data/*")


def test_the_same_files_make_the_same_archive_and_come_out_as_they_were(project: Path, tmp_path: Path) -> None:
    files = listed_files(project, project / "tests/test_alone.py")
    archive = pack(project, files)
    for path in files:
        path.touch()
    assert pack(project, files) == archive
    unpack(archive, digest_of_archive(archive), tmp_path / "out")
    assert (tmp_path / "out/tests/conftest.py").read_text() == "# tests/conftest.py\n"


def archive_with(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = kind, target
        archive.addfile(entry)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("archive", "message"),
    [
        (archive_with("../evil.py"), "the archive's entry '../evil.py' leads out of its folder"),
        (archive_with("a/../../evil.py"), "the archive's entry 'a/../../evil.py' leads out of its folder"),
        (archive_with("/etc/evil"), "the archive's entry '/etc/evil' leads out of its folder"),
        (archive_with("link", tarfile.SYMTYPE, "/etc/passwd"), "the archive's entry 'link' is not a plain file"),
        (archive_with("link", tarfile.LNKTYPE, "../x"), "the archive's entry 'link' is not a plain file"),
        (archive_with("pipe", tarfile.FIFOTYPE), "the archive's entry 'pipe' is not a plain file"),
        (b"no archive", "the archive cannot be unpacked: not a gzip file"),
    ],
    ids=["above", "above-a-folder", "absolute", "symlink", "hard-link", "pipe", "no-archive"],  # archives have times
)
def test_an_archive_that_could_write_elsewhere_is_refused(tmp_path: Path, archive: bytes, message: str) -> None:
    with pytest.raises(PackingError, match=message):
        unpack(archive, digest_of_archive(archive), tmp_path / "out")
    assert not (tmp_path / "out").exists() or not any((tmp_path / "out").iterdir())


def test_an_archive_that_somebody_replaced_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PackingError, match=r"the archive's SHA-256 is .*, and 00 was sent: something replaced it"):
        unpack(archive_with("x"), "00", tmp_path)


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
def tested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tested")
    (root / "test_it.py").write_text(MODULE)
    (root / "test_unimportable.py").write_text("import no_such_module\n\ndef test_it(): pass\n")
    (root / "conftest.py").write_text("import pytest\n\n@pytest.fixture\ndef greeting(): return 'hi'\n")
    (root / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    (root / "secret.key").write_text("mine")
    return root


def ship(
    tested: Path, nodeid: str, folder: Path, digest: str | None = None, *options: str
) -> subprocess.CompletedProcess[str]:
    module = tested / nodeid.partition("::")[0]
    archive = pack(tested, listed_files(tested, module, settings=tested / "pytest.ini"))
    (folder / "test.tar.gz").write_bytes(archive)
    command = [
        sys.executable, "-P", "-m", "t5x_harness.promotion.inside", f"--archive={folder / 'test.tar.gz'}",
        f"--sha256={digest or digest_of_archive(archive)}", f"--outcome={folder / 'new' / 'outcome.json'}",
        "--ini=pytest.ini", *options, nodeid,
    ]  # fmt: skip
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def outcome_of(tested: Path, nodeid: str, folder: Path) -> ShippedOutcome:
    done = ship(tested, nodeid, folder)
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
def test_every_phase_is_reported(tested: Path, tmp_path: Path, nodeid: str, outcomes: list[str]) -> None:
    outcome = outcome_of(tested, nodeid, tmp_path)
    assert outcome.nodeid == nodeid
    assert [report["outcome"] for report in outcome.reports] == outcomes
    assert {report["nodeid"] for report in outcome.reports} == {nodeid}
    assert outcome.problem == ""
    assert {"python", "pytest", "t5x-harness"} <= set(outcome.versions)


def test_a_module_that_cannot_be_imported_says_why(tested: Path, tmp_path: Path) -> None:
    outcome = outcome_of(tested, "test_unimportable.py::test_it", tmp_path)
    assert outcome.reports == ()
    assert "ModuleNotFoundError: No module named 'no_such_module'" in outcome.problem


def test_an_archive_that_is_not_the_one_that_was_sent_is_not_run(tested: Path, tmp_path: Path) -> None:
    done = ship(tested, "test_it.py::test_fails", tmp_path, digest="00")
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


@pytest.mark.parametrize(
    ("test", "platforms", "devices_there", "is_set", "words"),
    [
        ("test_uses", "cpu", "3 x cpu", True, "3 x cpu: nothing ran on the TPU, as JAX was set to take the CPU"),
        ("test_uses", None, "3 x cpu", False, "3 x cpu: nothing ran on the TPU, as JAX found no TPU"),
        ("test_uses_none", "cpu", "", False, "not looked at: the test imported no JAX"),
    ],
)
def test_devices_come_along(
    devices: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    test: str,
    platforms: str | None,
    devices_there: str,
    is_set: bool,
    words: str,
) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=3")
    for name in ("JAX_PLATFORMS", "JAX_PLATFORM_NAME"):
        monkeypatch.delenv(name, raising=False)
    if platforms is not None:
        monkeypatch.setenv("JAX_PLATFORMS", platforms)
    outcome = outcome_of(devices, f"test_devices.py::{test}", tmp_path)
    platform = "cpu" if devices_there else ""
    assert (outcome.devices, outcome.platform, outcome.platform_set) == (devices_there, platform, is_set)
    assert outcome.ran_on.fell_back is (platform == "cpu" and not is_set)
    assert outcome.ran_on.about(tpu=True, emulated=False) == words
    assert outcome.about_versions().startswith("python 3.")


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


def test_what_a_live_test_prints_is_in_the_log_and_not_in_its_report(tested: Path, tmp_path: Path) -> None:
    done = ship(tested, "test_it.py::TestIt::test_passes", tmp_path, None, "--live")
    assert done.returncode == 0, done.stderr
    assert "hello from the job" in done.stdout
    outcome = ShippedOutcome.from_text((tmp_path / "new" / "outcome.json").read_text())
    assert [report["outcome"] for report in outcome.reports] == ["passed"] * 3
    assert [report["sections"] for report in outcome.reports] == [[], [], []]
