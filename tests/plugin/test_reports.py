"""The reports that pytest leaves for others: JUnit properties, GitHub's annotations and step summary, quiet notes."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from t5x_harness.variables import WORKER_SOCKET_VARIABLE
from t5x_harness.version import __version__
from t5x_harness.workers.zygote import WARM_WORKER_UNUSED

Run = Callable[..., pytest.RunResult]

ANNOTATION = "::warning file=noted.gin,line={line},title=GIN02::nothing reads the macro TYPO = 1%0Afix: *"
NOTE = "noted.gin:*: note GIN06: no reference opens the scope train_eval, *"


@pytest.fixture(autouse=True)
def noted(folder: Path) -> Path:
    """A config with a warning and a note, next to the good ones, in its own repository."""
    (folder / ".git").mkdir()
    text = (folder / "infer.gin").read_text()
    path = folder / "noted.gin"
    path.write_text(f"{text}train_eval/utils.DatasetConfig.split = 'test'\nTYPO = 1\n")
    return path


def last_line(path: Path) -> int:
    return len(path.read_text().splitlines())


@pytest.mark.parametrize(
    ("in_workflow", "ini", "option", "annotates"),
    [
        (False, "auto", None, False),
        (True, "never", None, False),
        (True, "auto", "never", False),
        (True, "auto", None, True),
        (False, "always", None, True),
        (False, "never", "always", True),
    ],
)
def test_annotations_come_in_a_github_workflow_and_can_be_turned_off_and_on(
    run: Run,
    folder: Path,
    noted: Path,
    monkeypatch: pytest.MonkeyPatch,
    in_workflow: bool,
    ini: str,
    option: str | None,
    annotates: bool,
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true" if in_workflow else "false")
    (folder / "pytest.ini").write_text(f"[pytest]\nt5x_github_annotations = {ini}\n")
    result = run("noted.gin::lint", *([f"--t5x-github-annotations={option}"] if option else []))
    result.assert_outcomes(passed=1)
    notice = "::notice file=noted.gin,line=*,title=GIN06::no reference opens the scope train_eval*"
    for line in (ANNOTATION.format(line=last_line(noted)), notice):
        (result.stdout.fnmatch_lines([line]) if annotates else result.stdout.no_fnmatch_line(line))


def test_the_step_summary_is_added_to_once_a_session(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = folder / "summary.md"
    summary.write_text("what was there\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert run("noted.gin::lint", "infer.gin::lint", "-qq").ret == 0
    assert run("-n1", "infer.gin::lint").ret == 0
    lines = summary.read_text().splitlines()
    assert lines[0] == "what was there"
    assert lines.count("### t5x-harness") == 2
    assert "| run | mode | slice | lint | time |" in lines
    assert sum(line.startswith("| infer | infer | v3-8 | ok |") for line in lines) == 2
    assert sum("GIN02 | noted.gin:" in line for line in lines) == 1


def test_a_session_without_runs_adds_no_summary_and_no_versions(
    pytester: pytest.Pytester, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(folder / "summary.md"))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    pytester.makepyfile("def test_nothing_of_ours(): pass")
    pytester.runpytest_subprocess("--junitxml=out.xml").assert_outcomes(passed=1)
    assert not (folder / "summary.md").exists()
    assert ElementTree.parse(folder / "out.xml").getroot().findall("testsuite/properties") == []


def test_a_summary_that_cannot_be_written_fails_nothing(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(folder / "gone" / "summary.md"))
    result = run("infer.gin::lint")
    assert result.ret == 0
    result.stderr.fnmatch_lines([f"*$GITHUB_STEP_SUMMARY cannot be written: * {folder}/gone/summary.md"])


@pytest.mark.parametrize("distributed", [[], ["-n1"]])
def test_junit_has_stages_findings_and_versions(run: Run, folder: Path, noted: Path, distributed: list[str]) -> None:
    run("noted.gin::lint", "--junitxml=out.xml", "--t5x-slice=v4-16", *distributed)
    root = ElementTree.parse(folder / "out.xml").getroot()
    suite = {p.get("name"): p.get("value") for p in root.findall("testsuite/properties/property")}
    assert suite == {
        "t5x.harness": __version__,
        "t5x.runtime": f"embedded T5X {__version__}",
        "t5x.slice": "v4-16",
        **{f"t5x.{name}": version(name) for name in ("jax", "flax", "seqio")},
    }
    (case,) = root.iter("testcase")
    properties = [(p.get("name"), p.get("value")) for p in case.iter("property")]
    assert properties[0] == ("t5x.stage", "lint")
    assert ("t5x.mode", "infer") in properties
    assert ("t5x.finding", f"GIN02 noted.gin:{last_line(noted)}") in properties


def test_no_secret_is_in_the_output_or_junit(run: Run, folder: Path, noted: Path, pytester: pytest.Pytester) -> None:
    secret = "hf_" + "a1" * 17
    noted.write_text(f"{noted.read_text()}LOGIN = '{secret}'\nutils.DatasetConfig.batchsize = 'ghp_{'a1' * 18}'\n")
    pytester.makepyfile(
        test_own="def test_it(t5x_run):\n"
        f"    result = t5x_run('noted.gin', bindings=['LOGIN = \"{secret}\"'], until='lint', check=False)\n"
        "    print(result.spec.bindings)\n    assert result.spec == 3"
    )
    result = run("noted.gin::lint", "test_own.py", "--junitxml=out.xml", "-v", "-o", "junit_logging=all")
    result.assert_outcomes(failed=2)
    for written in (result.stdout.str(), (folder / "out.xml").read_text()):
        assert "a1a1" not in written
        assert "nothing reads the macro LOGIN = '***'" in written
        assert "RunSpec(" in written


def test_notes_are_quiet_unless_v_asks_for_them(run: Run) -> None:
    quiet = run("noted.gin::lint")
    quiet.stdout.no_fnmatch_line(NOTE)
    quiet.stdout.fnmatch_lines(["noted.gin:*: warning GIN02: nothing reads the macro TYPO*", "1 note, -v shows it"])
    run("noted.gin::lint", "-v").stdout.fnmatch_lines([NOTE])


def test_a_failed_stage_keeps_quiet_about_notes_too(run: Run, noted: Path) -> None:
    noted.write_text(f"{noted.read_text()}utils.DatasetConfig.batchsize = 3\n")
    failed = run("noted.gin::lint")
    failed.assert_outcomes(failed=1)
    failed.stdout.no_fnmatch_line(NOTE)
    for arguments in (["-v"], ["-v", "--tb=no"]):  # once, with the failure or in the table's details
        failed = run("noted.gin::lint", "-r", "N", *arguments)
        assert sum("note GIN06" in line for line in failed.outlines) == 1
        assert sum("error GIN13" in line for line in failed.outlines) == 1


@pytest.fixture
def mistaken(noted: Path) -> Path:
    """The config, in a deep folder, with a mistake that lint finds."""
    path = noted.parent / "team_a" / "configs" / "runs" / "noted.gin"
    path.parent.mkdir(parents=True)
    path.write_text(f"{noted.read_text()}utils.DatasetConfig.batchsize = 3\n")
    return path


@pytest.mark.parametrize("distributed", [[], ["-n1"]])
def test_the_short_summary_begins_with_the_code_and_fits(run: Run, mistaken: Path, distributed: list[str]) -> None:
    node = "team_a/configs/runs/noted.gin::lint"
    result = run(node, "--gin_search_paths=.", *distributed)
    (line,) = [line for line in result.outlines if line.startswith("FAILED ")]
    assert line.startswith(f"FAILED {node} - GIN13: utils.")
    assert line.endswith(f"... (noted.gin:{last_line(mistaken)})")
    assert len(line) == 80


def test_a_ci_gets_the_short_summary_whole(run: Run, mistaken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    result = run("team_a/configs/runs/noted.gin::lint", "--gin_search_paths=.")
    result.stdout.fnmatch_lines(
        [f"FAILED *::lint - GIN13: utils.DatasetConfig has no parameter batchsize; * (noted.gin:{last_line(mistaken)})"]
    )


@pytest.mark.usefixtures("mistaken")
def test_a_failure_is_as_wide_as_the_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    result = run("team_a/configs/runs/noted.gin::lint", "--gin_search_paths=.")
    start = next(i for i, line in enumerate(result.outlines) if "error GIN13" in line)
    assert max(map(len, result.outlines[start : start + 3])) <= 60


def test_strictly_a_warning_fails_its_item(run: Run) -> None:
    result = run("noted.gin::lint", "--t5x-strict")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["noted.gin:*: error GIN02: nothing reads the macro TYPO*"])


def test_a_config_and_a_test_of_it_are_told_apart(
    run: Run, mistaken: Path, folder: Path, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(
        test_own=f"def test_it(t5x_run): t5x_run('{mistaken.relative_to(folder)}', bindings=['BATCH_SIZE = 8'])"
    )
    result = run("team_a/configs/runs/noted.gin::lint", "test_own.py", "--gin_search_paths=.")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*gs/runs/noted.gin *FAILED*", "test_own.py::test_it *FAILED*"])
    result.stdout.fnmatch_lines(["FAILED test_own.py::test_it - *GIN13: lint of noted failed"])


def test_a_kept_worker_that_is_of_no_use_is_told(
    pytester: pytest.Pytester, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WORKER_SOCKET_VARIABLE, str(folder / "socket"))
    result = pytester.runpytest_subprocess("infer.gin::lint", "--t5x-runtime=embedded")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [f"{WARM_WORKER_UNUSED}: it cannot be reached at {folder}/socket: No such file or directory"]
    )
