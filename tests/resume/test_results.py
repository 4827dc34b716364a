"""An inference that was interrupted and went on is compared with one that ran through by its files and datasets."""

import json
from pathlib import Path

import pytest

from t5x_harness.findings.stage_report import StageReport
from t5x_harness.resume.results import Results, compare_results
from t5x_harness.spec import Mode, Stage

FILE = "task-predict.jsonl-00000-of-00001"
LINES = [json.dumps({"prediction": number}) for number in range(4)]
THROUGH = Results({FILE: LINES, f"{FILE}.COMPLETED": []}, {}, [[["a", "b"], ["c", "d"]]])


def resumed(lines: list[str], *lives: list[list[str]], **files: list[str]) -> Results:
    return Results({FILE: lines, f"{FILE}.COMPLETED": [], **files}, {}, lives)


def compared(found: Results, again: Results = THROUGH) -> tuple[StageReport, int]:
    report = StageReport(Stage.RESUME)
    return report, compare_results(THROUGH, found, Mode.INFER, lambda: again, report)


def test_one_that_goes_on_where_it_stopped() -> None:
    report, twice = compared(resumed(LINES, [["a", "b"]], [["c", "d"]]))
    assert (report.findings, report.not_checked, twice, report.exercised) == ([], [], 0, 1)
    assert report.facts == [
        ("went on from", "chunk 1 of 2; 0 made twice"),
        ("results", "4 lines of 2 files and 0 scalars, equal"),
    ]


def test_a_chunk_that_was_not_complete_is_made_twice() -> None:
    report, twice = compared(resumed(LINES, [["a", "b"]], [["a", "b"], ["c", "d"]]))
    assert (report.findings, twice) == ([], 1)
    assert report.facts[0] == ("went on from", "chunk 0 of 2; 1 made twice")


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (resumed(LINES[2:], [["a", "b"]], [["c", "d"]]), f"{FILE} has 2 lines, and 4 without a restart"),
        (resumed([*LINES[:2], *LINES[:2]], [["a", "b"]], [["c", "d"]]), f"line 3 of {FILE} is another one"),
        (resumed(LINES, [], [["c", "d"]], part=["x"]), "part is left"),
    ],
)
def test_other_results_are_named(found: Results, says: str) -> None:
    report, _ = compared(found)
    (error,) = report.findings
    assert (error.code, says in error.message) == ("RES09", True), error.message


def test_an_inference_that_differs_from_itself_is_not_blamed() -> None:
    noisy = resumed(["another", *LINES[1:]], [["a", "b"], ["c", "d"]])
    report, _ = compared(resumed([*LINES[:3], "other"], [["a", "b"]], [["c", "d"]]), noisy)
    assert report.findings == []
    assert report.not_checked == ["the results after a restart: without one, the same inference differs from itself"]


def test_the_line_that_a_killed_process_did_not_finish_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / FILE).write_text("one\ntwo\n")
    (tmp_path / "out" / "config.gin").write_text("written by each process")
    record = tmp_path / "record.jsonl"
    record.write_text('{"began": true}\n{"rows": ["a"]}\n{"began": true}\n{"rows": ["a"]}\n{"ro')
    found = Results.read(tmp_path / "out", record, {"loss": {"3": 0.5}})
    assert found == Results({FILE: ["one", "two"]}, {"loss": {3: 0.5}}, [[["a"]], [["a"]]])
