"""docs/resume.md shows lines that can be put into a config, and tables that its commands write."""

import re
from pathlib import Path

from page_blocks import blocks

import t5x_harness
from t5x_harness.findings.rule import FILES, trained
from t5x_harness.gin.reader import read
from t5x_harness.lint.stage import lint_program
from t5x_harness.spec import Ending, Moment, RunSpec


def test_its_lines_bind_the_trainer_for_preempted_jobs(page: str, tmp_path: Path) -> None:
    (block,) = blocks(page, "gin")
    for name, text in {**FILES, "run.gin": trained(*block.splitlines())}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    program = read(RunSpec(("run.gin",), cwd=str(tmp_path)), t5x_parent=Path(t5x_harness.__file__).parent / "embedded")
    bound = program.final["", "__main__.train", "trainer_cls"]
    assert str(bound.value) == "@preemption.Trainer"
    assert [finding.code for finding in lint_program(program).findings] == []


def test_its_table_is_written_by_its_command(page: str, repository: Path) -> None:
    command = re.search(r"^`python (benchmarks/preemption\.py) .*--write docs/resume\.md`$", page, re.MULTILINE)
    assert command is not None
    assert (repository / command[1]).exists()
    table = page.split("<!-- preemption -->")[1].split("<!-- /preemption -->")[0]
    assert [row.split(" | ")[0] for row in table.splitlines() if "`" in row] == [
        "| `trainer.Trainer`",
        "| `preemption.Trainer`",
    ]


def test_no_fault_of_its_matrix_is_silent(page: str, repository: Path) -> None:
    command = re.search(r"^`python (benchmarks/faults\.py) --write docs/resume\.md`$", page, re.MULTILINE)
    assert command is not None
    assert (repository / command[1]).exists()
    table = page.split("<!-- faults -->")[1].split("<!-- /faults -->")[0].strip().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]
    assert {row[0].strip("`") for row in rows} == {*Moment}
    cells = [cell for row in rows for cell in row[4:]]
    assert len(cells) == len(rows) * len(Ending) >= 60
    assert all(re.match(r"equal|RES\d\d|CKP16|not compared", cell) for cell in cells), cells
