"""A table's columns line up, no matter what is in its cells."""

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t5x_harness.findings.text import GAP, Bytes, Count, columns
from t5x_harness.report.table import PREEMPTION, preemption
from t5x_harness.spec import Measure, Outcome, RunResult, RunSpec, Stage, StageResult


def test_words_stand_left_and_numbers_right() -> None:
    rows = [("encoder", 1234, "1.5 GiB", "v4"), ("decoder/logits", 7, "12 MiB", "v3-8"), ("sum", "1,241", "-", "")]
    assert columns(rows, ("module", "parameters", "bytes", "slice")) == (
        "module          parameters    bytes  slice\n"
        "encoder               1234  1.5 GiB  v4\n"
        "decoder/logits           7   12 MiB  v3-8\n"
        "sum                  1,241        -"
    )


@pytest.mark.parametrize("number", ["0", "-1.5", "1e-05", "12%", "~3 GiB", "1,000", "2.5 s", "8 lines", "1_000"])
def test_these_are_numbers(number: str) -> None:
    assert columns([[number], ["123456789012"]]) == f"{number:>12}\n123456789012"


@pytest.mark.parametrize("word", ["v3", "4x4", "1.2.3-rc", "step 3", "(8, 128)", "3 of 4 hosts"])
def test_these_are_words(word: str) -> None:
    assert columns([[word], ["123456789012"]]) == f"{word}\n123456789012"


def test_no_header_short_rows_and_nothing_at_all() -> None:
    assert columns([("a", "b"), ("longer",)]) == "a       b\nlonger"
    assert columns([], ("a", "b")) == "a  b"
    assert columns([]) == ""


def test_a_cell_is_one_line_without_gaps() -> None:
    assert columns([("two\nlines  and   gaps", "x")]) == "two lines and gaps  x"


@given(st.lists(st.lists(st.text(max_size=8), min_size=3, max_size=3), min_size=1, max_size=6))
def test_cells_can_be_told_apart(rows: list[list[str]]) -> None:
    rows = [["first", *row] for row in rows]
    lines = columns(rows).split("\n")
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows, strict=True):
        shown = [cell.strip(" ") for cell in line.split(GAP)]
        assert [cell for cell in shown if cell] == [cell for cell in (" ".join(c.split()) for c in row) if cell]


def test_it_imports_nothing_heavy() -> None:
    program = "import sys, t5x_harness.findings.text; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert not {"jax", "numpy", "tensorflow", "gin"} & set(loaded.stdout.split())


def test_a_table_keeps_its_cells_for_programs() -> None:
    table = columns([("a", Count(60506624), Bytes(2**30)), ("b  c",)], ("name", "parameters", "bytes"))
    assert table.splitlines()[1] == "a     60,506,624  1 GiB"
    assert table.header == ("name", "parameters", "bytes")
    assert json.loads(json.dumps(table.rows)) == [["a", 60506624, 2**30], ["b c"]]


def planned_and_compiled(*aot: Measure) -> RunResult:
    plan = StageResult(
        Stage.PLAN,
        Outcome.PASSED,
        facts=((PREEMPTION, "up to 500 steps"),),
        measures=(Measure("steps_lost_to_a_preemption", 500, "steps"), Measure("steps_to_train", 10_000, "steps")),
    )
    return RunResult(RunSpec(("run.gin",)), (plan, StageResult(Stage.AOT, Outcome.PASSED, measures=aot)))


def test_the_cost_of_a_preemption_is_in_steps_and_in_money_where_the_step_was_compiled() -> None:
    hours, usd = (
        Measure("chip_hours_at_least", 80.0, "chip-hours", "train"),
        Measure("usd_at_least", 160.0, "USD", "train"),
    )
    assert [*preemption(planned_and_compiled())] == ["a preemption costs up to 500 steps"]
    assert [*preemption(planned_and_compiled(hours))] == [
        "a preemption costs up to 500 steps; 500 steps: at least 4 chip-hours"
    ]
    assert [*preemption(planned_and_compiled(hours, usd))] == [
        "a preemption costs up to 500 steps; 500 steps: at least 4 chip-hours, 8 USD by the list"
    ]
    assert [*preemption(RunResult(RunSpec(("run.gin",)), ()))] == []
