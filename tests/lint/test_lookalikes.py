"""Lookalikes: strings in place of other types, and characters, macros and imports in place of each other."""

import pytest
from linting import RUN, Folder

from t5x_harness.lint.rules.syntax import unseen_character
from t5x_harness.spec import Severity

QUOTED = [
    ("USE_CACHED_TASKS = 'False'\n", "a boolean is needed", "USE_CACHED_TASKS = False"),
    ("MIXTURE_OR_TASK_MODULE = 'None'\n", "None is written without quotes", "MIXTURE_OR_TASK_MODULE = None"),
    ("RANDOM_SEED = '42'\n", "a number is needed", "RANDOM_SEED = 42"),
    ("utils.SaveCheckpointConfig.keep = '3'\n", "a number is needed", "utils.SaveCheckpointConfig.keep = 3"),
    ("train/utils.DatasetConfig.shuffle = 'True'\n", "a boolean is needed", "train/utils.DatasetConfig.shuffle = True"),
    ("train_script.train.use_orbax = '0'\n", "a boolean is needed", "train_script.train.use_orbax = 0"),
    ("TASK_FEATURE_LENGTHS = \"{'inputs': 8}\"\n", "a dict is needed", "TASK_FEATURE_LENGTHS = {'inputs': 8}"),
    ("train_script.train.stats_period = ' 5 '\n", "a number is needed", "train_script.train.stats_period = 5"),
    ("utils.RestoreCheckpointConfig.assignment_map = '[]'\n", "a tuple or list is needed", "…map = []"),
    ("own.fun.flag = 'False'\n", "a boolean is needed", "own.fun.flag = False"),
    ("own.fun.many = '1.5'\n", "a number is needed", "own.fun.many = 1.5"),
    ("own.Thing.size = '7'\n", "a number is needed", "own.Thing.size = 7"),
]
"""A line, the type that its string should have, and the line without quotes."""

TEXTS = (
    "utils.RestoreCheckpointConfig.dtype = '32'",
    "own.fun.name = '7'",
    "own.fun.name = 'None'",
    "own.fun.anything = '7'",
    "own.fun.anything = 'True'",
    "own.fun.anything = '(1, 2)'",
    "own.fun.flag = 'auto'",
    "own.fun.many = 'x'",
    "train/utils.DatasetConfig.split = '123'",
    "TITLE = '5'\nTITLE = '6'\nown.fun.anything = %TITLE",
)
"""Strings that may be intended as strings."""

_OWN = """\
def fun(flag=True, many=1, name='x', anything=None): pass
class Thing:
    def __init__(self, a, *, size=3): pass
"""


@pytest.mark.parametrize(("line", "needed", "fixed"), QUOTED)
def test_a_quoted_value_is_named_for_its_quotes(folder: Folder, line: str, needed: str, fixed: str) -> None:
    folder.write({"own.py": _OWN})
    gin = RUN.replace("from t5x import utils\n", "from t5x import utils\nimport own\n") + line
    finding = folder.only(gin, "GIN08", python_path=(str(folder.path),))
    assert needed in finding.message
    assert (finding.fix or "").startswith("take the quotes away: ")
    assert (finding.fix or "").endswith(fixed.removeprefix("…"))
    is_harmless = line.startswith("own") or fixed.endswith("= True")  # T5X takes a text for True
    assert finding.severity is (Severity.WARNING if is_harmless else Severity.ERROR)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("train_script.train.stats_period = [1]", "stats_period cannot be [1]: it is a whole number of steps"),
        ("BATCH_SIZE = {'train': 8}", "BATCH_SIZE cannot be {'train': 8} (read by train/"),
        ("train_script.train.eval_steps = (1, 2)", "eval_steps cannot be (1, 2): it is a whole number of batches"),
    ],
)
def test_a_list_for_a_number_is_named(folder: Folder, line: str, said: str) -> None:
    """A smoke run gives these parameters its own values, so T5X never sees the config's."""
    finding = folder.only(RUN + line + "\n", "GIN37")
    assert said in finding.message
    assert finding.severity is Severity.ERROR
    assert (finding.fix or "").startswith("give a whole number from ")


def test_an_empty_list_for_a_number_asks_for_nothing(folder: Folder) -> None:
    found = folder.findings(RUN + "train_script.train.stats_period = []\n")
    assert "GIN08" not in {finding.code for finding in found}


@pytest.mark.parametrize("line", TEXTS)
def test_a_string_that_may_be_meant_is_left_alone(folder: Folder, line: str) -> None:
    folder.write({"own.py": _OWN})
    gin = RUN.replace("from t5x import utils\n", "from t5x import utils\nimport own\n") + f"{line}\n"
    assert "GIN08" not in [f.code for f in folder.findings(gin, python_path=(str(folder.path),))]


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
