"""Text that looks right and is not: characters, macros and imports that take each other's place."""

from __future__ import annotations

import pytest
from linting import RUN, Folder

from t5x_harness.lint.rules.syntax import unseen_character


@pytest.mark.parametrize(
    ("line", "says", "fix"),
    [
        ("A\u00a0= 1", "column 2 is U+00A0 (NO-BREAK SPACE), which looks like a plain space", "write a plain space"),
        ("\ufeffA = 1", "column 1 is U+FEFF (ZERO WIDTH NO-BREAK SPACE), which does not show", "take it out"),
        ("A = 5 \u200b", "column 7 is U+200B (ZERO WIDTH SPACE), which does not show", "take it out"),
        ("A = \u201cx\u201d", "column 5 is U+201C (LEFT DOUBLE QUOTATION MARK), which looks like", "straight quote"),
        ("A = \u2019x\u2019", "column 5 is U+2019 (RIGHT SINGLE QUOTATION MARK), which looks like", "straight quote"),
        ("A = `x`", "column 5 is U+0060 (GRAVE ACCENT), which looks like a straight quote", "straight quote"),
        ("A = \u22121", "column 5 is U+2212 (MINUS SIGN), which looks like a plain -", "write a plain - in its place"),
    ],
)
def test_a_character_that_looks_like_another_is_named_with_its_column(
    folder: Folder, line: str, says: str, fix: str
) -> None:
    finding = folder.only(f"{RUN}{line}\n", "GIN07")
    assert says in finding.message
    assert fix in (finding.fix or "")
    assert finding.location is not None
    assert finding.location.line == len(RUN.splitlines()) + 1


def test_a_tab_among_spaces(folder: Folder) -> None:
    finding = folder.only(f"{RUN}train/utils.DatasetConfig:\n  pack = True\n\tseed = 3\n", "GIN07")
    assert finding.message.endswith("column 1 is a tab")
    assert finding.fix == "indent with spaces alone"


@pytest.mark.parametrize(
    "line", ["A = '\u201cx\u201d' y", "A = 1.2.3  # \u2013 a dash", "A = 'it\u2019s", "A = yes", "\tA = yes"]
)
def test_what_stands_in_strings_and_comments_is_text(line: str) -> None:
    assert unseen_character(line, "not a Python literal") is None


def test_macros_that_take_their_values_from_each_other(folder: Folder) -> None:
    lines = "BATCH_SIZE = %BATCH_SIZE\nA = %B\nB = %C\nC = %A\ntrain/utils.DatasetConfig.seed = %B\n"
    found = [f for f in folder.findings(RUN + lines) if f.code == "GIN18"]
    assert [(f.location.line if f.location else 0, f.message) for f in found] == [
        (10, "the macro BATCH_SIZE takes its value from itself, so that it has none: BATCH_SIZE = %BATCH_SIZE"),
        (11, "the macro A takes its value from itself, so that it has none: A = %B, B = %C, C = %A"),
    ]
    assert found[0].fix == "give BATCH_SIZE a value of its own"


def test_a_misspelt_required_has_a_line(folder: Folder) -> None:
    finding = folder.only(f"{RUN}train/utils.DatasetConfig.seed = %gin.REQUIRD\n", "GIN18")
    assert finding.location is not None
    assert finding.location.line == 10
    assert "did you mean gin.REQUIRED?" in finding.message


def test_two_modules_imported_under_one_name(folder: Folder) -> None:
    folder.write({"one/__init__.py": "", "one/tasks.py": "def f(a=1): ...\n"})
    folder.write({"two/__init__.py": "", "two/tasks.py": "def g(b=1): ...\n"})
    finding = folder.only(
        f"{RUN}from one import tasks\nfrom two import tasks\ntasks.f.a = 3\n", "GIN14", python_path=(".",)
    )
    assert finding.message == (
        "two.tasks has no f: run.gin:11 imports two.tasks as tasks, which run.gin:10 has imported one.tasks as"
    )
    assert finding.fix == "import one of the two under another name: from two import tasks as two_tasks"
