"""A config with a mistake fails in one stage with one error; senseless arguments are refused in one line."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from t5x_harness.runs.model_dirs import claim_model_dir
from t5x_harness.spec import RunSettings, RunSpec

pytestmark = pytest.mark.usefixtures("imported")

Run = Callable[..., pytest.RunResult]

# The file, the stage, the line, the message of the error, and the fix.
ERRORS = [
    (
        "syntax.gin",
        "lint",
        14,
        "error GIN07: cannot parse `DROPOUT_RATE = 0.0.0`",
        "the value has to be a Python literal",
    ),
    (
        "unknown_configurable.gin",
        "lint",
        18,  # the block's own line
        "error GIN14: t5x.utils has no DatasetConfg; did you mean DatasetConfig?",
        "check its spelling",
    ),
    (
        "no_such_include.gin",
        "lint",
        8,
        "error GIN16: there is no gin file models/tiny_peaces.gin; searched: .,",
        "did you mean models/tiny_pieces.gin?",
    ),
    (
        "unregistered_task.gin",
        "resolve",
        12,
        "error SEQ04: no task or mixture is called 'sample_anser'",
        "use 'sample_answer'",
    ),
    (
        "no_such_split.gin",
        "resolve",
        19,
        "error INF11: task sample_answer has no split 'test' (it has: train, validation)",
        "choose a split that it has",
    ),
    (
        "no_mesh.gin",
        "plan",
        15,
        "error MSH03: T5X has no default submesh for num_partitions=3 on TPU v3 (v3-8)",
        "v3-8 can be cut into submeshes of 1, 2, 4 or 8 devices",
    ),
]
FILES = [name for name, *_ in ERRORS]


def unwrapped(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def assert_each_error_is_told_once(output: str) -> None:
    text = unwrapped(output)
    for name, _, line, message, fix in ERRORS:
        told = rf"{re.escape(f'{name}:{line}: {message}')}[^!]*? fix: {re.escape(fix)}"
        assert len(re.findall(told, text)) == 1, (name, output)


def test_pytest_fails_one_item_of_each_and_skips_what_follows(run_pytest: Run) -> None:
    result = run_pytest(*FILES, "-rfs")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(failed=6, passed=4, skipped=14)
    for name, stage, _, message, _ in ERRORS:
        code = message.removeprefix("error ").partition(":")[0]
        result.stdout.fnmatch_lines([f"FAILED {name}::{stage} - {code}: *"])
    result.stdout.fnmatch_lines(["SKIPPED [[]3[]] syntax.gin:*: not run: lint failed"])
    result.stdout.fnmatch_lines(["logs and outputs of the failed runs are kept in *"])
    assert_each_error_is_told_once(result.stdout.str().partition("= short test summary info =")[0])


def test_the_command_ends_with_1(run_command: Run) -> None:
    result = run_command("run", *FILES)
    assert result.ret == 1
    assert_each_error_is_told_once(result.stdout.str())
    result.stdout.fnmatch_lines(["6 failed, 6 errors in *"])


def test_a_folder_asked_for_is_not_left_behind_empty(run_command: Run, folder: Path) -> None:
    result = run_command("run", "unregistered_task.gin", "--model_dir=out/run")
    assert result.ret == 1
    assert not (folder / "out").exists()


def test_a_fragment_on_the_command_line_is_a_collection_error(run_pytest: Run) -> None:
    result = run_pytest("models/tiny_pieces.gin", "good.gin")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(
        [
            "*ERROR collecting models/tiny_pieces.gin*",
            "models/tiny_pieces.gin is not a run config: it binds none of train, evaluate and infer",
            "    fix: name the config that includes it; or declare a run of several files, *",
        ]
    )


def test_a_fragment_that_shall_run_ends_with_1(run_command: Run) -> None:
    result = run_command("plan", "models/tiny_pieces.gin")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["models/tiny_pieces.gin:1: error GIN31: this is not a run config: it binds none of T5X's functions *"]
    )


def test_a_missing_file_is_wrong_usage(run_pytest: Run) -> None:
    result = run_pytest("missing_config.gin")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: file or directory not found: missing_config.gin"])


def test_a_binding_that_cannot_be_parsed_is_named(run_pytest: Run) -> None:
    result = run_pytest("good.gin", "--t5x-gin", "DROPOUT_RATE = ", "-k", "lint")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*error GIN07: cannot parse `DROPOUT_RATE = `*"])


NO_SLICE = "'v3-9' is not a TPU slice: nearest names: v3-8, v3-32, v3-64; or give a topology in chips, such as *"


def the_usage_error(result: pytest.RunResult, message: str) -> None:
    """The exit status is 4, with one line of output, as pytest users expect."""
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {message}"])
    assert len([line for line in result.errlines if line.strip()]) == 1


def test_an_unknown_slice_among_the_options_and_in_pyproject(run_pytest: Run, folder: Path) -> None:
    the_usage_error(run_pytest("good.gin", "--t5x-slice=v3-9"), f"--t5x-slice {NO_SLICE}")
    (folder / "pyproject.toml").write_text('[tool.t5x_harness]\nslice = "v3-9"\n')
    the_usage_error(run_pytest("good.gin"), f"*/pyproject.toml:2: slice {NO_SLICE}")


def test_a_mistake_in_pyproject(run_pytest: Run, folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.t5x_harness]\n\ngin_file = ['*.gin']\n")
    the_usage_error(run_pytest("good.gin"), "*/pyproject.toml:3: unknown key 'gin_file': did you mean gin_files?")


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
