"""What makes no sense to start with is refused before anything is started, in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from t5x_harness.runs.model_dirs import claim_model_dir
from t5x_harness.spec import RunSettings, RunSpec

pytestmark = pytest.mark.usefixtures("imported")

Run = Callable[..., pytest.RunResult]

NO_SLICE = "'v3-9' is not a TPU slice: nearest names: v3-8, v3-32, v3-64; or give a topology in chips, such as *"


def the_usage_error(result: pytest.RunResult, message: str) -> None:
    """Exit status 4 and one line, as pytest users expect."""
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {message}"])
    assert len([line for line in result.errlines if line.strip()]) == 1


def test_an_unknown_slice_among_the_options(run_pytest: Run, run_command: Run) -> None:
    the_usage_error(run_pytest("good.gin", "--t5x-slice=v3-9"), f"slice {NO_SLICE}")
    result = run_command("run", "good.gin", "--slice=v3-9")
    assert result.ret == 2
    result.stderr.fnmatch_lines([f"t5x-harness: {NO_SLICE}"])


def test_an_unknown_slice_in_pyproject(run_pytest: Run, folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.t5x_harness]\nslice = "v3-9"\n')
    the_usage_error(run_pytest("good.gin"), f"slice {NO_SLICE}")


def test_a_mistake_in_pyproject(run_pytest: Run, run_command: Run, folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.t5x_harness]\n\ngin_file = ['*.gin']\n")
    message = "*/pyproject.toml:3: unknown key 'gin_file': did you mean gin_files?"
    the_usage_error(run_pytest("good.gin"), message)
    result = run_command("lint")
    assert result.ret == 2
    result.stderr.fnmatch_lines([f"t5x-harness: {message}"])


def test_an_unknown_slice_given_to_t5x_run(run_pytest: Run, folder: Path) -> None:
    test = folder / "test_it.py"
    test.write_text("def test_it(t5x_run):\n    t5x_run('good.gin', slice='v3-9')\n")
    result = run_pytest("test_it.py")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([f"t5x_run: slice {NO_SLICE}"])
    result.stdout.no_fnmatch_line("*test_it.py:2*")
    test.unlink()


@pytest.mark.parametrize(
    ("model_dir", "message"),
    [
        ("good.gin/out", "--model_dir good.gin/out: */good.gin is a file; name a folder"),
        ("/proc/nothing/out", "--model_dir /proc/nothing/out: cannot be written: *; name another folder"),
        ("models", "--model_dir models: it already holds tiny_bytes.gin, tiny_pieces.gin; name a new folder *"),
    ],
)
def test_a_folder_that_the_run_cannot_have(run_command: Run, model_dir: str, message: str) -> None:
    result = run_command("run", "good.gin", f"--model_dir={model_dir}")
    assert result.ret == 2
    result.stderr.fnmatch_lines([f"t5x-harness: {message}"])
    assert result.outlines == []


def test_two_runs_of_one_call_into_one_folder(run_command: Run, folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.t5x_harness]\ngin_files = ["good.gin", "no_mesh.gin"]\n')
    result = run_command("run", "--model_dir=out")
    assert result.ret == 2
    result.stderr.fnmatch_lines(["t5x-harness: --model_dir out for 2 runs: two runs cannot write into one folder; *"])


def test_two_runs_at_once_into_one_folder(run_command: Run, folder: Path) -> None:
    """The other run is this process."""
    with claim_model_dir(RunSpec(("good.gin",), cwd=str(folder), settings=RunSettings(model_dir="out"))):
        result = run_command("run", "good.gin", "--model_dir=out")
        assert result.ret == 2
        result.stderr.fnmatch_lines(
            ["t5x-harness: --model_dir out: another run is writing into it; give each run its own"]
        )
        assert (folder / "out").is_dir()
    assert not (folder / "out").exists()
    with claim_model_dir(RunSpec(("good.gin",), cwd=str(folder), settings=RunSettings(model_dir="out"))):
        (folder / "out" / "checkpoint_4").mkdir()
    assert (folder / "out" / "checkpoint_4").is_dir()
