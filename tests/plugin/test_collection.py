"""Run configs, but not fragments, become items, one for each stage; the user chooses which are collected."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., pytest.RunResult]

TRAIN = ["lint", "resolve", "plan", "train", "eval", "infer"]
INFER = ["lint", "resolve", "plan", "infer"]


def collected(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if "::" in line]


def items(file: str, stages: list[str]) -> list[str]:
    return [f"{file}::{stage}" for stage in stages]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("infer.gin", "train.gin"), [*items("infer.gin", INFER), *items("train.gin", TRAIN)]),
        (("train.gin::eval",), ["train.gin::eval"]),
        (("train.gin", "infer.gin", "-k", "plan"), ["train.gin::plan", "infer.gin::plan"]),
        (("train.gin", "infer.gin", "-k", "train and not lint"), items("train.gin", TRAIN[1:])),
        (
            ("--t5x-until=plan", "train.gin", "infer.gin"),
            [*items("train.gin", TRAIN[:3]), *items("infer.gin", INFER[:3])],
        ),
        (("--t5x-until=eval", "infer.gin"), items("infer.gin", INFER[:3])),
    ],
)
def test_a_file_has_the_stages_of_its_mode_of_which_some_are_chosen(
    run: Run, arguments: tuple[str, ...], expected: list[str]
) -> None:
    result = run("--co", "-q", *arguments)
    assert collected(result) == expected
    assert result.ret == pytest.ExitCode.OK


def test_a_folder_gives_its_run_configs_to_smoke_only(run: Run, folder: Path) -> None:
    (folder / "test_python.py").write_text("def test_it(): pass\n")
    everything = [*items("infer.gin", INFER), *items("train.gin", TRAIN)]
    assert collected(run("--co", "-q", "-m", "smoke", ".")) == everything
    assert collected(run("--co", "-q", ".")) == ["test_python.py::test_it"]
    assert collected(run("--co", "-q", "-m", "not smoke", ".")) == ["test_python.py::test_it"]
    assert collected(run("--co", "-q")) == ["test_python.py::test_it"]


def test_globs_of_the_configuration_are_collected(run: Run, folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.t5x_harness]\ngin_files = ["inf*.gin", "models/*.gin"]\n')
    assert collected(run("--co", "-q", "-m", "smoke")) == items("infer.gin", INFER)
    (folder / "pyproject.toml").write_text('[tool.pytest.ini_options]\nt5x_gin_files = ["tr*.gin"]\n')
    assert collected(run("--co", "-q", "-m", "smoke")) == items("train.gin", TRAIN)
    assert collected(run("--co", "-q", "infer.gin")) == items("infer.gin", INFER)


def test_a_configured_file_that_is_not_there_is_refused(run: Run, folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.t5x_harness]\ngin_files = ["infer.gin", "trian.gin"]\n')
    result = run("--co", "-q", "-m", "smoke")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: *pyproject.toml:2: gin_files: there is no file trian.gin; did you mean train.gin?"]
    )
    assert run("--co", "-q").ret == pytest.ExitCode.NO_TESTS_COLLECTED, "it collects no config"
    (folder / "pyproject.toml").write_text('[tool.pytest.ini_options]\nt5x_gin_files = ["deep/*.gin"]\n')
    run("-m", "smoke").stderr.fnmatch_lines(["ERROR: ini value t5x_gin_files: 'deep/?.gin' matches no file below *"])


def test_a_configured_file_that_cannot_be_read_or_is_open_is_not_passed_over(run: Run, folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.t5x_harness]\ngin_files = ["*.gin"]\n')
    (folder / "torn.gin").write_text((folder / "infer.gin").read_text() + "BATCH_SIZE =\n")
    (folder / "open.gin").write_text("include 't5x/configs/runs/infer.gin'\n")
    result = run("--co", "-m", "smoke")
    result.stdout.fnmatch_lines(["t5x-harness: left out: open.gin *"])
    result.stdout.fnmatch_lines(["*torn.gin*"])


LEFT_OUT = "t5x-harness: {} left out; -m smoke, or naming a gin file, runs {}"


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ((), ("unit/test_it.py",)),
        ((".",), ("unit/test_it.py", "outside/test_other.py")),
        (("-m", "not slow"), ("unit/test_it.py",)),
        (("-m", "not smoke", "."), ("unit/test_it.py", "outside/test_other.py")),
    ],
)
def test_without_smoke_no_config_is_collected_and_the_header_says_so(
    run: Run, folder: Path, arguments: tuple[str, ...], names: tuple[str, ...]
) -> None:
    (folder / "pyproject.toml").write_text(
        f'{DECLARED}\n[tool.pytest.ini_options]\ntestpaths = ["unit"]\nt5x_gin_files = ["*.gin"]\n'
    )
    for name in ("unit/test_it.py", "outside/test_other.py"):
        (folder / name).parent.mkdir()
        (folder / name).write_text("def test_it(): pass\n")
    result = run("--co", "-q", *arguments)
    assert sorted(collected(result)) == sorted(f"{name}::test_it" for name in names)
    run("--co", *arguments).stdout.fnmatch_lines([LEFT_OUT.format("4 configured runs", "them")])


def test_the_header_counts_what_is_below_the_named_folders_only(run: Run, folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.t5x_harness]\ngin_files = ["*/*.gin"]\n')
    for name in ("a", "b"):
        (folder / name).mkdir()
        (folder / name / "run.gin").write_text((folder / "infer.gin").read_text())
        (folder / name / "test_it.py").write_text("def test_it(): pass\n")
    run("--co", "a").stdout.fnmatch_lines([LEFT_OUT.format("1 configured run", "it")])
    run("--co", "a", "a/run.gin").stdout.no_fnmatch_line("*left out*")
    run("--co", "a/test_it.py").stdout.no_fnmatch_line("*left out*")
    run("--co", "-m", "smoke").stdout.no_fnmatch_line("*left out*")


def test_an_expression_with_a_mistake_is_refused_by_pytest(run: Run) -> None:
    result = run("-m", "smoke and (")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*Wrong expression passed to '-m': smoke and (*"])


DECLARED = """\
[tool.t5x_harness]
search_paths = ["."]

[[tool.t5x_harness.runs]]
name = "declared"
gin_files = ["models/tiny_pieces.gin", "t5x/configs/runs/infer.gin"]
bindings = { MIXTURE_OR_TASK_NAME = "sample_answer", DROPOUT_RATE = 0.0 }

[[tool.t5x_harness.runs]]
name = "open"
gin_files = ["models/tiny_pieces.gin"]
"""


def test_declared_runs_stand_below_pyproject(run: Run, folder: Path) -> None:
    (folder / "pyproject.toml").write_text(DECLARED)
    declared = items("pyproject.toml::declared", ["lint"])  # not all values are known, so its mode is uncertain
    result = run("--co", "-q", "-m", "smoke")
    assert collected(result) == [*declared, "pyproject.toml::open::lint"]
    assert collected(run("--co", "-q", "pyproject.toml::open")) == ["pyproject.toml::open::lint"]
    (folder / "pyproject.toml").write_text(
        DECLARED.replace(
            "DROPOUT_RATE = 0.0",
            "DROPOUT_RATE = 0.0, TASK_FEATURE_LENGTHS = { inputs = 8, targets = 8 }, CHECKPOINT_PATH = 'gs://b/checkpoint_8'",
        )
    )
    result = run("--co", "-q", "-m", "smoke")
    assert collected(result)[:-1] == items("pyproject.toml::declared", INFER)


def test_a_named_run_that_leaves_something_open_says_what_at_its_line(run: Run, folder: Path) -> None:
    text = (folder / "train.gin").read_text()
    (folder / "train.gin").write_text("".join(x for x in text.splitlines(True) if not x.startswith("TRAIN_STEPS")))
    result = run("-m", "smoke", "train.gin", "-k", "lint")
    result.assert_outcomes(failed=1, deselected=5)
    result.stdout.fnmatch_lines(["train.gin:*: error GIN03: TRAIN_STEPS is gin.REQUIRED and nothing gives it a value*"])


def test_a_declared_run_that_is_none_says_what_it_lacks(run: Run, folder: Path) -> None:
    (folder / "pyproject.toml").write_text(DECLARED)
    result = run("-m", "smoke", "-k", "open")
    result.assert_outcomes(failed=1, deselected=1)
    result.stdout.fnmatch_lines(["models/tiny_pieces.gin:1: error GIN31: this is not a run config: *"])


def test_items_are_at_the_line_that_makes_the_file_a_run(run: Run, folder: Path) -> None:
    (folder / "pyproject.toml").write_text(DECLARED)
    run("-k", "lint", "-o", "junit_family=xunit1", "--junitxml=out.xml", "infer.gin", "train.gin", "pyproject.toml")
    lines = {
        case.get("classname"): (case.get("file"), int(case.get("line", -1)))
        for case in ElementTree.parse(folder / "out.xml").iter("testcase")
    }
    at = {name: (folder / name).read_text().splitlines() for name in ("infer.gin", "train.gin", "pyproject.toml")}
    assert lines["infer.gin"] == ("infer.gin", at["infer.gin"].index("infer_script.infer.mode = 'score'"))
    assert lines["train.gin"] == ("train.gin", at["train.gin"].index("include 't5x/configs/runs/finetune.gin'"))
    assert lines["pyproject.toml.declared"] == (
        "pyproject.toml",
        at["pyproject.toml"].index("[[tool.t5x_harness.runs]]"),
    )


def test_the_header_names_runtime_and_slice(run: Run) -> None:
    result = run("--co", "infer.gin", "--t5x-slice=v3-32")
    result.stdout.fnmatch_lines(["t5x-harness *: embedded T5X *, slice v3-32 (32 devices), emulated on CPU"])
