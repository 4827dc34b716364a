"""The golden plan: the same text for the same plan, differences that name bindings, and the place of its file."""

import dataclasses
from pathlib import Path

import pytest

from t5x_harness.commands.arguments import UsageError, specs_of
from t5x_harness.commands.main import parser_of
from t5x_harness.plan.golden import CHECKPOINT_FITS, GoldenPlan, GoldenSyntaxError, check_golden, check_golden_numbers
from t5x_harness.settings.configuration import golden_file
from t5x_harness.spec import (
    AotMode,
    Assignment,
    BoundValue,
    Location,
    Measure,
    Outcome,
    RunResult,
    RunSettings,
    RunSpec,
    Severity,
    Stage,
    StageResult,
)

TABLE = "step  rate\n   0  0.01\n  20  0.1"
FACTS = {"mesh": "data 8 x model 1", "steps": "100, from scratch", "learning rate": TABLE}


def bound(
    name: str, value: str, configurable: str | None = None, *, line: int = 1, file: str = "run.gin"
) -> BoundValue:
    return BoundValue(name, configurable, Assignment(value, Location(file, line)))


BINDINGS = (
    bound("TRAIN_STEPS", "100", line=7),
    bound("train_script.train.total_steps", "%TRAIN_STEPS", "__main__.train", line=9),
    bound("train/utils.DatasetConfig.batch_size", "8", "t5x.utils.DatasetConfig", line=3),
)


def planned(
    folder: Path, bindings: tuple[BoundValue, ...] = BINDINGS, *, update: bool = False, **facts: str
) -> StageResult:
    spec = RunSpec(
        ("run.gin",),
        cwd=str(folder),
        settings=RunSettings(plan_golden=str(folder / "golden/run.plan"), plan_golden_update=update),
    )
    resolve = StageResult(Stage.RESOLVE, Outcome.PASSED, facts=(("mode", "train"),))
    plan = StageResult(Stage.PLAN, Outcome.PASSED, facts=tuple((FACTS | facts).items()), exercised=1)
    return check_golden(RunResult(spec, (resolve, plan), bindings=bindings), {})


def changed(name: str, value: str) -> tuple[BoundValue, ...]:
    return tuple(
        dataclasses.replace(b, assignment=Assignment(value, b.assignment.location)) if b.name == name else b
        for b in BINDINGS
    )


def test_it_is_written_where_there_is_none(tmp_path: Path) -> None:
    result = planned(tmp_path)
    assert result.outcome is Outcome.PASSED
    assert result.facts[-1] == ("golden plan", "golden/run.plan: written")
    assert result.not_checked == ("whether the plan is as before: golden/run.plan was not there and is written now",)
    lines = (tmp_path / "golden/run.plan").read_text().splitlines()
    assert lines[0].startswith("# Golden plan of run, written by t5x-harness ")
    assert lines[2:] == [
        "",
        "[bindings]",
        "TRAIN_STEPS = 100",
        "train.total_steps = %TRAIN_STEPS",
        "train/utils.DatasetConfig.batch_size = 8",
        "",
        "[resolve]",
        "mode = train",
        "",
        "[plan]",
        "mesh = data 8 x model 1",
        "steps = 100, from scratch",
        "learning rate =",
        "    step  rate",
        "       0  0.01",
        "      20  0.1",
    ]


def test_the_same_plan_has_no_difference(tmp_path: Path) -> None:
    planned(tmp_path)
    result = planned(tmp_path)
    assert (result.outcome, result.findings, result.not_checked) == (Outcome.PASSED, (), ())
    assert result.facts[-1] == ("golden plan", "golden/run.plan: no difference")


def test_a_difference_names_the_binding_its_place_and_its_effect(tmp_path: Path) -> None:
    planned(tmp_path)
    result = planned(tmp_path, changed("TRAIN_STEPS", "200"), steps="200, from scratch")
    assert result.outcome is Outcome.FAILED
    (finding,) = result.findings
    assert (finding.code, finding.severity, finding.stage) == ("PLN01", Severity.ERROR, Stage.PLAN)
    assert finding.location == Location("run.gin", 7)
    assert finding.binding == "TRAIN_STEPS"
    assert finding.message.splitlines() == [
        "the plan differs from golden/run.plan in 1 binding and 1 planned value:",
        "TRAIN_STEPS: 100 -> 200 (run.gin:7)",
        "steps: 100, from scratch -> 200, from scratch",
    ]
    assert finding.fix == (
        "undo it, or if it is meant, rewrite golden/run.plan with --plan-golden-update "
        "(pytest: --t5x-plan-golden-update) and commit it"
    )


def test_new_and_lost_bindings_and_changed_lines_of_a_table_are_named(tmp_path: Path) -> None:
    planned(tmp_path)
    given = bound("Z_LOSS", "0.1", file="--gin bindings", line=2)
    result = planned(tmp_path, (*BINDINGS[1:], given), **{"learning rate": TABLE.replace("0.1", "0.2")})
    (finding,) = result.findings
    assert finding.message.splitlines() == [
        "the plan differs from golden/run.plan in 2 bindings and 1 planned value:",
        "TRAIN_STEPS: 100 -> not bound",
        "Z_LOSS: not bound -> 0.1 (--gin bindings:2)",
        "learning rate:",
        "  - 20  0.1",
        "  + 20  0.2",
    ]


def test_a_comment_silences_the_change_of_its_own_line_and_nothing_else(tmp_path: Path) -> None:
    planned(tmp_path)
    comment = "  # t5x-harness: ignore[PLN01]\n"
    (tmp_path / "run.gin").write_text("\n" * 6 + f"TRAIN_STEPS = 200{comment}")
    both = tuple(changed("TRAIN_STEPS", "200")[:2]) + changed("train/utils.DatasetConfig.batch_size", "16")[2:]
    result = planned(tmp_path, both, steps="200, from scratch")
    (finding,) = result.findings
    assert finding.location == Location("run.gin", 3)
    assert finding.message.splitlines()[1:] == [
        "train/utils.DatasetConfig.batch_size: 8 -> 16 (run.gin:3)",
        "steps: 100, from scratch -> 200, from scratch",
    ]
    assert [found.message for found in result.silenced] == ["TRAIN_STEPS: 100 -> 200 (run.gin:7)"]
    alone = planned(tmp_path, changed("TRAIN_STEPS", "200"))
    assert (alone.outcome, alone.findings, [f.code for f in alone.silenced]) == (Outcome.PASSED, (), ["PLN01"])
    assert alone.facts[-1][1] == "golden/run.plan: no difference, but for bindings whose lines silence it"


def test_a_change_of_the_planned_values_alone_is_one_too(tmp_path: Path) -> None:
    planned(tmp_path)
    (finding,) = planned(tmp_path, mesh="data 4 x model 2").findings
    assert finding.location is None
    assert finding.message.splitlines()[1:] == ["mesh: data 8 x model 1 -> data 4 x model 2"]


def test_it_is_written_anew_only_when_asked(tmp_path: Path) -> None:
    planned(tmp_path)
    before = (tmp_path / "golden/run.plan").read_text()
    planned(tmp_path, changed("TRAIN_STEPS", "200"))
    assert (tmp_path / "golden/run.plan").read_text() == before
    result = planned(tmp_path, changed("TRAIN_STEPS", "200"), update=True)
    assert result.outcome is Outcome.PASSED
    assert result.facts[-1] == ("golden plan", "golden/run.plan: rewritten")
    assert planned(tmp_path, changed("TRAIN_STEPS", "200")).findings == ()


def test_an_update_of_what_has_not_changed_leaves_the_file_alone(tmp_path: Path) -> None:
    planned(tmp_path)
    file = tmp_path / "golden/run.plan"
    file.write_text(file.read_text().replace("# Golden plan", "# Old plan"))
    assert planned(tmp_path, update=True).facts[-1] == ("golden plan", "golden/run.plan: no difference")
    assert file.read_text().startswith("# Old plan")


@pytest.mark.parametrize("merged", ["<<<<<<< HEAD\n", "[bindings]\nTRAIN_STEPS\n"])
def test_a_file_that_is_not_a_golden_plan_is_reported(tmp_path: Path, merged: str) -> None:
    (tmp_path / "golden").mkdir()
    (tmp_path / "golden/run.plan").write_text(merged)
    (finding,) = planned(tmp_path).findings
    number, line = len(merged.splitlines()), merged.splitlines()[-1]
    assert finding.message == (
        f"golden/run.plan is not a golden plan: line {number} is neither [a section] nor NAME = VALUE: {line!r}"
    )
    assert finding.fix == "restore it, or rewrite it with --plan-golden-update (pytest: --t5x-plan-golden-update)"


def test_nothing_of_the_machine_is_kept(tmp_path: Path) -> None:
    stage = StageResult(
        Stage.PLAN,
        Outcome.PASSED,
        facts=(
            (CHECKPOINT_FITS, "12 arrays agree"),
            ("data", f"{tmp_path}/data/a.tsv"),
            ("files", "name  read from\na     /opt/lib/tasks/a.tsv\nb     gs://bucket/b"),
            ("run", "/tmp/x/model"),
        ),
    )
    plan = GoldenPlan.of(
        (bound("A", f"'{tmp_path}/data'"), bound("B", "'/data/b'")), (stage,), {str(tmp_path): ".", "/tmp/x": "<run>"}
    )
    assert plan.bindings == {"A": "'./data'", "B": "'/data/b'"}
    assert plan.facts["plan"] == {
        "data": "./data/a.tsv",
        "files": "name  read from\na     .../a.tsv\nb     gs://bucket/b",
        "run": "<run>/model",
    }


def test_other_widths_of_a_table_are_not_a_difference(tmp_path: Path) -> None:
    planned(tmp_path)
    assert planned(tmp_path, **{"learning rate": "step    rate\n0       0.01\n20      0.1"}).findings == ()


def test_a_name_does_not_depend_on_how_a_file_imports_it() -> None:
    by_alias = GoldenPlan.of((bound("eval/u.DatasetConfig.split", "'x'", "t5x.utils.DatasetConfig"),), (), {})
    assert list(by_alias.bindings) == ["eval/utils.DatasetConfig.split"]
    two = GoldenPlan.of((bound("m.A.x", "1", "one.m.A"), bound("n.A.x", "2", "two.m.A")), (), {})
    assert two.bindings == {"one.m.A.x": "1", "two.m.A.x": "2"}


def test_a_text_is_read_back_as_it_was_written() -> None:
    plan = GoldenPlan({"A": "'a = b'", "E": ""}, {"plan": {"table": "  a  b\n  1  2", "one": "x"}})
    assert GoldenPlan.from_text(plan.to_text("comment")) == plan
    with pytest.raises(GoldenSyntaxError, match="line 1 is neither"):
        GoldenPlan.from_text("    A = 1\n")


@pytest.mark.parametrize(
    ("target", "expected"),
    [("golden", "golden/run.plan"), ("golden.d/", "golden.d/run.plan"), ("x/first.plan", "x/first.plan")],
)
def test_a_suffix_makes_it_a_file(target: str, expected: str) -> None:
    assert golden_file(target, "run") == expected


def test_a_folder_is_one_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "golden.d").mkdir()
    assert golden_file(str(tmp_path / "golden.d"), "run") == str(tmp_path / "golden.d/run.plan")


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    """Returns a run with a golden plan that does not yet have numbers."""
    (tmp_path / "run.plan").write_text(GoldenPlan({"A": "1"}, {"plan": {"mesh": "data 8"}}).to_text("one"))
    return RunSpec(("run.gin",), cwd=str(tmp_path), settings=RunSettings(plan_golden="run.plan", aot=AotMode.MEMORY))


def compiled(peak: float, **more: float) -> StageResult:
    measures = (Measure("hbm_peak", peak, "bytes", "train"), *(Measure(n, v, of="train") for n, v in more.items()))
    return StageResult(Stage.AOT, Outcome.PASSED, measures=measures, exercised=1)


def kept(spec: RunSpec) -> dict[str, str]:
    text = Path(spec.cwd, "run.plan").read_text()
    return dict(GoldenPlan.from_text(text).facts["aot"])


def test_numbers_are_added_once_and_may_differ_by_a_hundredth(spec: RunSpec) -> None:
    result = check_golden_numbers(spec, compiled(1000, compile_cpu_seconds=3))
    assert result.facts == (("golden plan", "run.plan: numbers written"),)
    assert kept(spec) == {"mode": "memory", "hbm_peak of train": "1000 bytes"}
    result = check_golden_numbers(spec, compiled(1009))
    assert result.facts == (("golden plan", "run.plan: no number differs by more than 1%"),)
    assert kept(spec)["hbm_peak of train"] == "1000 bytes"


def test_a_peak_that_grows_fails_and_an_update_accepts_it(spec: RunSpec) -> None:
    check_golden_numbers(spec, compiled(1000))
    result = check_golden_numbers(spec, compiled(1100, flops_of_a_device=7))
    assert result.outcome is Outcome.FAILED
    (finding,) = result.findings
    assert (finding.code, finding.stage) == ("PLN01", Stage.AOT)
    assert finding.message.splitlines() == [
        "what the TPU compiler says differs from run.plan by more than 1%:",
        "hbm_peak of train: 1000 bytes -> 1100 bytes (+10.0%)",
        "flops_of_a_device of train: nothing -> 7",
    ]
    (mode,) = check_golden_numbers(spec.with_settings(aot=AotMode.DEPTHS), compiled(1000)).findings
    assert mode.message.splitlines()[1:] == ["mode: memory -> depths"]
    assert check_golden_numbers(spec.with_settings(ignore=("PLN01",)), compiled(1100)).findings == ()
    check_golden_numbers(spec.with_settings(plan_golden_update=True), compiled(1100))
    assert kept(spec)["hbm_peak of train"] == "1100 bytes"


@pytest.mark.parametrize("update", [False, True])
def test_a_plan_without_the_stage_leaves_the_numbers_alone(spec: RunSpec, update: bool) -> None:
    check_golden_numbers(spec, compiled(1000))
    plan = StageResult(Stage.PLAN, Outcome.PASSED, facts=(("mesh", "data 16" if update else "data 8"),))
    Path(spec.cwd, "run.plan").write_text(Path(spec.cwd, "run.plan").read_text().replace("A = 1\n", ""))
    result = check_golden(RunResult(spec.with_settings(aot=None, plan_golden_update=update), (plan,)), {})
    assert result.facts[-1] == ("golden plan", f"run.plan: {'rewritten' if update else 'no difference'}")
    assert kept(spec) == {"mode": "memory", "hbm_peak of train": "1000 bytes"}


def test_what_was_only_lowered_has_no_numbers(spec: RunSpec) -> None:
    before = Path(spec.cwd, "run.plan").read_text()
    assert check_golden_numbers(spec, StageResult(Stage.AOT, Outcome.PASSED)).facts == ()
    assert Path(spec.cwd, "run.plan").read_text() == before


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Returns the folder of a project whose table declares two runs of the same file."""
    (tmp_path / "pyproject.toml").write_text(
        '[tool.t5x_harness]\nplan_golden = "kept"\n'
        '[[tool.t5x_harness.runs]]\nname = "small"\ngin_files = ["run.gin"]\n'
        '[[tool.t5x_harness.runs]]\nname = "large"\ngin_files = ["run.gin"]\n'
    )
    for name in ("run.gin", "a/x.gin", "b/x.gin"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


def specs(folder: Path, *arguments: str, command: str = "plan") -> tuple[RunSpec, ...]:
    parser, _ = parser_of(command)
    return specs_of(parser.parse_args([command, *arguments]), folder)


def test_the_project_names_the_folder_and_each_run_has_its_file(folder: Path) -> None:
    assert [spec.settings.plan_golden for spec in specs(folder)] == [
        str(folder / "kept/small.plan"),
        str(folder / "kept/large.plan"),
    ]
    assert not any(spec.settings.plan_golden_update for spec in specs(folder))


def test_the_option_comes_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (spec,) = specs(folder, "run.gin", "--plan-golden=one.plan", "--plan-golden-update")
    assert (spec.settings.plan_golden, spec.settings.plan_golden_update) == (str(folder / "one.plan"), True)


def test_lint_has_none(folder: Path) -> None:
    assert [spec.settings.plan_golden for spec in specs(folder, command="lint")] == [None, None]


@pytest.mark.parametrize("golden", ["one.plan", "golden"])
def test_two_runs_cannot_share_one(folder: Path, golden: str) -> None:
    with pytest.raises(UsageError) as caught:
        specs(folder, "a/x.gin", "b/x.gin", f"--plan-golden={golden}")
    text = str(caught.value)
    assert text.endswith(
        "would be the golden plan of a/x.gin and of b/x.gin; for several runs name a folder, and give each run its own "
        "name"
    )


def test_an_update_needs_something_to_update(tmp_path: Path) -> None:
    (tmp_path / "run.gin").write_text("")
    with pytest.raises(UsageError, match="--plan-golden-update: name the file or folder, too: --plan-golden=PATH"):
        specs(tmp_path, "run.gin", "--plan-golden-update")
