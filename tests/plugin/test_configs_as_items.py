"""Configs behave as pytest users expect: -n, -x, --lf, -k, JUnit, golden plans, runs ahead."""

import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from t5x_harness.plugin.gin_items import StageItem
from t5x_harness.plugin.session import SESSION
from t5x_harness.runs.pool import RunPool
from t5x_harness.runs.session import RunRegistry

Run = Callable[..., pytest.RunResult]

NO_SPLIT = ("split = 'validation'", "split = 'test'")


def copy(folder: Path, name: str, *changes: tuple[str, str]) -> None:
    """Copies infer.gin with changes."""
    text = (folder / "infer.gin").read_text()
    for change in changes:
        text = text.replace(*change)
    (folder / name).write_text(text)


@pytest.mark.journey
def test_two_workers_share_the_runs_and_one_table_shows_them(run: Run, folder: Path) -> None:
    copy(folder, "broken.gin", NO_SPLIT)
    copy(folder, "other.gin", ("'score'", "'predict'"))
    result = run("-n2", "-v", "infer.gin", "other.gin", "broken.gin", "--junitxml=out.xml")
    result.assert_outcomes(passed=9, failed=1, skipped=2)
    for name in ("infer", "other", "broken"):
        lines = [line.split() for line in result.outlines if f" {name}.gin::" in line and line.startswith("[gw")]
        assert len({worker for worker, *_ in lines}) == 1  # a run's stages share a process
        assert [line[-1].partition("::")[2] for line in lines] == ["lint", "resolve", "plan", "infer"]
    header = next(i for i, line in enumerate(result.outlines) if line.split()[:3] == ["run", "mode", "slice"])
    table = {line.split()[0]: line.split() for line in result.outlines[header + 1 : header + 4]}
    assert table["infer"][3:7] == table["other"][3:7] == ["ok"] * 4
    assert table["broken"][3:7] == ["ok", "FAILED", "-", "-"]
    result.stdout.fnmatch_lines(["log and output of the failed run are kept in *broken-*"])

    cases = {
        (case.get("classname"), case.get("name")): {p.attrib["name"]: p.attrib["value"] for p in case.iter("property")}
        for case in ElementTree.parse(folder / "out.xml").iter("testcase")
    }
    assert cases["infer.gin", "plan"]["t5x.mesh"] == "data 8 x model 1"
    assert cases["infer.gin", "infer"]["t5x.sample_answer_score"].startswith("8 lines with ")
    assert cases["infer.gin", "plan"]["t5x.mesh.data"] == "8"
    assert int(cases["infer.gin", "plan"]["t5x.parameters"]) > 0
    assert not [name for of_case in cases.values() for name, value in of_case.items() if " " in name or "\n" in value]
    assert cases["broken.gin", "resolve"]["t5x.finding"].startswith("INF11 broken.gin:")


def test_x_stops_and_lf_comes_back_to_what_failed(run: Run, folder: Path) -> None:
    copy(folder, "broken.gin", NO_SPLIT)
    result = run("-x", "broken.gin", "infer.gin")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["broken *FAILED*"])
    result.stdout.no_fnmatch_line("infer *")  # which had begun ahead

    copy(folder, "broken.gin")
    result = run("--lf", "broken.gin", "infer.gin", "-v")
    result.assert_outcomes(passed=1)  # resolve; lint, which it needs, runs without being an item
    result.stdout.fnmatch_lines(["broken.gin::resolve PASSED*"])
    result.stdout.fnmatch_lines(["run *lint *resolve *", "broken *ok *ok *"])


def test_a_late_stage_alone_fails_with_the_cause(run: Run, folder: Path) -> None:
    copy(folder, "broken.gin", NO_SPLIT)
    result = run("broken.gin::infer")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["broken.gin:*: error INF11: task sample_answer has no split 'test' *"])


@pytest.mark.journey
def test_runs_in_pytests_own_process_for_a_debugger(run: Run, folder: Path) -> None:
    (folder / "my_tasks.py").write_text("import os\nprint('registered in', os.getpid())\n")
    (folder / "conftest.py").write_text("import os\nprint('pytest is', os.getpid())\n")
    copy(folder, "own.gin", ("DROPOUT_RATE", "import my_tasks\nDROPOUT_RATE"))
    result = run("-s", "--t5x-in-process", "own.gin::resolve")
    result.assert_outcomes(passed=1)
    pids = {words[0] + words[1]: words[2] for line in result.outlines if len(words := line.split()[-3:]) == 3}
    assert pids["registeredin"] == pids["pytestis"]


PLAN = "train.gin::plan"


@pytest.mark.journey
def test_the_first_run_writes_it_the_next_compares_and_an_update_accepts(folder: Path, run: Run) -> None:
    first = run(PLAN, "--t5x-plan-golden=golden")
    first.assert_outcomes(passed=1)
    first.stdout.fnmatch_lines(["*whether the plan is as before: golden/train.plan was not there*"])
    kept = (folder / "golden/train.plan").read_text()
    assert str(folder) not in kept

    changed = run(PLAN, "--t5x-plan-golden=golden", "--t5x-gin=TRAIN_STEPS = 14_000")
    changed.assert_outcomes(failed=1)
    changed.stdout.fnmatch_lines(["*error PLN01: the plan differs from golden/train.plan in 1 binding and*"])
    changed.stdout.fnmatch_lines(["*TRAIN_STEPS: * -> 14000 (--gin bindings:1)*"])
    assert (folder / "golden/train.plan").read_text() == kept

    run(PLAN, "--t5x-plan-golden=golden", "--t5x-plan-golden-update", "--t5x-gin=TRAIN_STEPS = 14_000").assert_outcomes(
        passed=1
    )
    assert "TRAIN_STEPS = 14000\n" in (folder / "golden/train.plan").read_text()


def test_the_project_may_say_where_they_are(folder: Path, run: Run) -> None:
    (folder / "pyproject.toml").write_text('[tool.t5x_harness]\nplan_golden = "kept"\n')
    run(PLAN).assert_outcomes(passed=1)
    assert (folder / "kept/train.plan").is_file()


def test_two_configs_cannot_share_one(run: Run) -> None:
    result = run("train.gin", "infer.gin", "--t5x-plan-golden=one.plan", "--collect-only")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "*--t5x-plan-golden: */one.plan would be the golden plan of */infer.gin and of */train.gin; for several "
            "runs name a folder, and give each run its own name*"
        ]
    )


Collect = Callable[..., Sequence[pytest.Item]]


@pytest.fixture
def collect(pytester: pytest.Pytester, folder: Path) -> Collect:
    """Collects the named ones of the configs ``a.gin`` to ``f.gin`` and a test."""
    for name in "abcdef":
        shutil.copy(folder / "infer.gin", folder / f"{name}.gin")
    pytester.makepyfile(test_own="def test_own(): pass")

    def call(*arguments: str) -> Sequence[pytest.Item]:
        items, _ = pytester.inline_genitems("--t5x-runtime=embedded", *arguments)
        return items[0].session.items  # without the deselected ones

    return call


def runs(items: Sequence[pytest.Item], index: int = 0, ahead: int | None = 1) -> list[tuple[str, str]]:
    """Returns the runs that begin when it is an item's turn, each with the first letters of its stages."""
    item = items[index]
    assert isinstance(item, StageItem)
    session = item.config.stash[SESSION]
    pool = RunPool(timeout=None, parallel=session.runs_at_once if ahead is None else 1 + ahead)
    found = RunRegistry(pool, Path, lambda event: None).next_runs(item.spec, item.pending_runs)
    return [(run.spec.name, "".join(stage[0] for stage in run.stages)) for run in found]


def test_the_next_runs_are_begun_with_all_their_selected_stages(collect: Collect) -> None:
    items = collect("a.gin", "b.gin", "c.gin", "d.gin", "e.gin", "f.gin")
    assert runs(items) == [("a", "lrpi"), ("b", "lrpi"), ("c", "lrpi"), ("d", "lrpi")]  # two at once, two to follow
    assert runs(items, 4, ahead=0) == []
    assert [name for name, _ in runs(items, 16)] == ["e", "f"]
    assert runs(collect("-k", "plan", "a.gin", "b.gin")) == [("a", "p"), ("b", "p")]
    assert runs(collect("a.gin", "b.gin::lint")) == [("a", "lrpi"), ("b", "l")]


def test_none_is_begun_beyond_a_test_or_after_its_own_first_stage(collect: Collect) -> None:
    items = collect("a.gin", "b.gin", "test_own.py", "c.gin")
    assert [name for name, _ in runs(items)] == ["a", "b"]
    assert [name for name, _ in runs(items, 1)] == ["b"]
    assert runs(items, 9) == [("c", "lrpi")]


def test_a_run_with_a_skipped_stage_waits_for_its_turn(collect: Collect, folder: Path) -> None:
    (folder / "conftest.py").write_text(
        "import pytest\ndef pytest_collection_modifyitems(items):\n    items[4].add_marker(pytest.mark.skip)\n"
    )
    assert [name for name, _ in runs(collect("a.gin", "b.gin", "c.gin"))] == ["a", "c"]


@pytest.mark.parametrize("option", ["--t5x-in-process", "--t5x-full-size", "--t5x-ahead=0"])
def test_runs_come_one_after_the_other_where_they_must(collect: Collect, option: str) -> None:
    assert runs(collect(option, "a.gin", "b.gin"), ahead=None) == []


def test_a_number_of_runs_counts_more_than_their_size(collect: Collect) -> None:
    items = collect("--t5x-full-size", "-o", "t5x_ahead=1", "a.gin", "b.gin")
    assert [name for name, _ in runs(items, ahead=None)] == ["a", "b"]
