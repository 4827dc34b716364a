"""A shipped test is packed with what is listed and nothing else, and an archive unpacks into its folder only."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from t5x_harness.promotion import packing
from t5x_harness.promotion.packing import PackingError, TestArchive, listed_files, pack, unpack


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
    return list(pack(root, files).names)


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
    monkeypatch.setattr(packing, "LIMIT", 2**20)
    (project / "data/a.tsv").write_bytes(b"0" * (2**20 + 1))
    with pytest.raises(PackingError, match=r"have 1 MiB, and 1 MiB is the limit; the largest is data/a.tsv: put it"):
        names(project, "tests/test_alone.py", "data/*")


def test_the_same_files_make_the_same_archive_and_come_out_as_they_were(project: Path, tmp_path: Path) -> None:
    files = listed_files(project, project / "tests/test_alone.py")
    archive = pack(project, files)
    for path in files:
        path.touch()
    assert pack(project, files).digest == archive.digest
    unpack(archive, archive.digest, tmp_path / "out")
    assert (tmp_path / "out/tests/conftest.py").read_text() == "# tests/conftest.py\n"


def archive_with(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> TestArchive:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = kind, target
        archive.addfile(entry)
    return TestArchive((name,), buffer.getvalue())


@pytest.mark.parametrize(
    ("archive", "message"),
    [
        (archive_with("../evil.py"), "the archive's entry '../evil.py' leads out of its folder"),
        (archive_with("a/../../evil.py"), "the archive's entry 'a/../../evil.py' leads out of its folder"),
        (archive_with("/etc/evil"), "the archive's entry '/etc/evil' leads out of its folder"),
        (archive_with("link", tarfile.SYMTYPE, "/etc/passwd"), "the archive's entry 'link' is not a plain file"),
        (archive_with("link", tarfile.LNKTYPE, "../x"), "the archive's entry 'link' is not a plain file"),
        (archive_with("pipe", tarfile.FIFOTYPE), "the archive's entry 'pipe' is not a plain file"),
        (TestArchive((), b"no archive"), "the archive cannot be unpacked: not a gzip file"),
    ],
)
def test_an_archive_that_could_write_elsewhere_is_refused(tmp_path: Path, archive: TestArchive, message: str) -> None:
    with pytest.raises(PackingError, match=message):
        unpack(archive, archive.digest, tmp_path / "out")
    assert not (tmp_path / "out").exists() or not any((tmp_path / "out").iterdir())


def test_an_archive_that_somebody_replaced_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PackingError, match=r"the archive's SHA-256 is .*, and 00 was sent: something replaced it"):
        unpack(archive_with("x"), "00", tmp_path)
