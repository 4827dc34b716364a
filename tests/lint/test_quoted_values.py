"""GIN08: a string is faulted where another type is sure to be needed, and nowhere else."""

from __future__ import annotations

import pytest
from linting import RUN, Folder

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
"""A line, what its string should be, and the line without quotes."""

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
"""Strings that may be meant as they are."""

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
    assert finding.severity is (Severity.WARNING if line.startswith("own") else Severity.ERROR)


@pytest.mark.parametrize(
    ("line", "is_a"),
    [
        ("train_script.train.stats_period = [1]", "[1] is a list, and a number is needed"),
        ("BATCH_SIZE = {'train': 8}", "{'train': 8} is a dict, and a number is needed (read by train/"),
        ("train_script.train.eval_steps = (1, 2)", "(1, 2) is a tuple, and a number is needed"),
    ],
)
def test_a_list_for_a_number_is_named(folder: Folder, line: str, is_a: str) -> None:
    """A smoke run gives these parameters values of its own, so that T5X never sees the config's."""
    finding = folder.only(RUN + line + "\n", "GIN08")
    assert is_a in finding.message
    assert (finding.severity, finding.fix) == (Severity.ERROR, "give a number")


def test_an_empty_list_for_a_number_asks_for_nothing(folder: Folder) -> None:
    found = folder.findings(RUN + "train_script.train.stats_period = []\n")
    assert "GIN08" not in {finding.code for finding in found}


@pytest.mark.parametrize("line", TEXTS)
def test_a_string_that_may_be_meant_is_left_alone(folder: Folder, line: str) -> None:
    folder.write({"own.py": _OWN})
    gin = RUN.replace("from t5x import utils\n", "from t5x import utils\nimport own\n") + f"{line}\n"
    assert "GIN08" not in [f.code for f in folder.findings(gin, python_path=(str(folder.path),))]


def test_a_quoted_length_is_named(folder: Folder) -> None:
    finding = folder.only(RUN + "TASK_FEATURE_LENGTHS = {'inputs': '128', 'targets': 8}\n", "GIN08")
    assert finding.message.startswith(
        "the length of inputs in TASK_FEATURE_LENGTHS is the string '128', and a number is needed (read by train/"
    )
    assert finding.fix == "write 'inputs': 128"
