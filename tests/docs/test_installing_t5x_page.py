"""docs/installing-t5x.md: its commands name files and commits that are there, and it shows what is printed."""

import re
import shutil
from pathlib import Path

import pytest
from page_blocks import blocks

from t5x_harness.commands.main import main
from t5x_harness.system import tested_versions


def test_the_conflict_is_explained_as_shown(
    page: str, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = repository / "tests" / "reports" / "01-flax-wants-another-optax" / "job.log"
    shutil.copy(report, tmp_path / "pip.log")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["doctor", "--explain", "pip.log"]) == 0
    file = tested_versions.constraints_file()
    printed = capsys.readouterr().out.replace(f"{file.parent.parent}/", "").replace(file.name, "py3.11.txt")
    assert printed == blocks(page, "text")[0]


def test_the_files_and_commits_are_those_of_this_repository(page: str, repository: Path) -> None:
    shell = "".join(blocks(page, "shell"))
    files = set(re.findall(r"constraints/[\w.]+\.txt", shell))
    assert files >= {"constraints/t5x.txt"}
    assert [file for file in files if not (repository / file).is_file()] == []
    commits = set(re.findall(r"@([0-9a-f]{40})", shell))
    assert commits == set(re.findall(r"_COMMIT=([0-9a-f]{40})", (repository / "docker" / "Dockerfile").read_text()))


def test_each_version_that_the_page_names_is_the_one_of_the_files(page: str) -> None:
    for name, version in re.findall(r"^\| `?([\w-]+)`? \| ([\d.]+) \| \2 \| \2 \|$", page, re.MULTILINE):
        assert tested_versions.tested_versions()[name] == version, name
