"""A folder with a correct config and copies of it with one mistake each, and ways to run them as users do."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from t5x_harness.sample_tasks import CONFIGS

GOOD = (CONFIGS / "infer_answer.gin").read_text()
PARTITIONS = "t5x.partitioning.PjitPartitioner.num_partitions"
MISTAKES = {
    "syntax.gin": ("DROPOUT_RATE = 0.0", "DROPOUT_RATE = 0.0.0"),
    "unknown_configurable.gin": ("utils.DatasetConfig:", "utils.DatasetConfg:"),
    "unregistered_task.gin": ("'sample_answer'\n", "'sample_anser'\n"),
    "no_such_split.gin": ("split = 'validation'", "split = 'test'"),
    "no_such_include.gin": ("models/tiny_pieces.gin", "models/tiny_peaces.gin"),
    "no_mesh.gin": (
        "DROPOUT_RATE",
        "import t5x.partitioning\nt5x.partitioning.PjitPartitioner.num_partitions = 3\nDROPOUT_RATE",
    ),
}


@pytest.fixture
def folder(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes the folder, which is also the working directory."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (pytester.path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(pytester.path / "temporary"))
    shutil.copytree(CONFIGS / "models", pytester.path / "models")
    (pytester.path / "good.gin").write_text(GOOD)
    for name, (before, after) in MISTAKES.items():
        assert GOOD.count(before) == 1
        (pytester.path / name).write_text(GOOD.replace(before, after))
    return pytester.path


@pytest.fixture
def run_pytest(pytester: pytest.Pytester, folder: Path) -> Callable[..., pytest.RunResult]:
    """Returns a function that runs pytest in the folder and checks that it shows no traceback and leaves no files."""

    def run(*arguments: str) -> pytest.RunResult:
        return _checked(
            folder,
            lambda: pytester.runpytest_subprocess("-p", "no:cacheprovider", "--t5x-runtime=embedded", *arguments),
        )

    return run


@pytest.fixture
def run_command(pytester: pytest.Pytester, folder: Path) -> Callable[..., pytest.RunResult]:
    """Returns a function that runs ``t5x-harness`` in the folder with the same checks."""
    program = "import sys; from t5x_harness.commands.main import main; sys.exit(main())"

    def run(*arguments: str) -> pytest.RunResult:
        return _checked(
            folder, lambda: pytester.run(sys.executable, "-c", program, *arguments, "--t5x-runtime=embedded")
        )

    return run


def _checked(folder: Path, run: Callable[[], pytest.RunResult]) -> pytest.RunResult:
    before = _names(folder)
    result = run()
    for text in (result.stdout, result.stderr):
        text.no_fnmatch_line("*Traceback*")
        text.no_fnmatch_line("*INTERNALERROR*")
    assert _names(folder) == before
    return result


def _names(folder: Path) -> list[str]:
    """Returns the contents of the folder, without those of pytester, pytest's tmp_path and Keras (in its home)."""
    found = []
    for place, folders, files in os.walk(folder):
        if place == str(folder):  # servers that end remove their folders from it meanwhile
            folders[:] = [name for name in folders if name != "temporary"]
        found += [Path(place, name).relative_to(folder).as_posix() for name in (*folders, *files)]
    return sorted(name for name in found if not name.startswith(("runpytest-", ".keras", "stdout", "stderr")))
