"""Exceptions that no rule knows: which one of a chain is reported, who raised it, and its first sentence."""

import contextlib
import functools
import importlib.util
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import gin
import jax
import numpy as np
import pytest
import tensorflow as tf
from flax import linen as nn
from seqio import utils as seqio_utils
from t5x import utils
from tasks_in_text import raised

from t5x_harness.resolve.exceptions import (
    error_text,
    is_deliberate,
    library_frame,
    root_cause,
    user_frame,
    users_callee,
)
from t5x_harness.resolve.explanation import explain
from t5x_harness.resolve.samples import packed_rows
from t5x_harness.spec import Stage

CHAINS = """
class Closed(RuntimeError):
    pass

def while_handled():
    try:
        raise ValueError('the first')
    except ValueError:
        [][1]

def raised_in_the_end():
    try:
        raise ValueError('the first')
    finally:
        raise Closed('closed already')

def lookup_explained():
    try:
        {}['gleu']
    except KeyError:
        raise ValueError('no activation is called gleu')

def explained_by_from():
    try:
        int('a')
    except ValueError as error:
        raise RuntimeError('line 3 of words.txt is not a number') from error

def without_context():
    try:
        int('a')
    except ValueError:
        raise RuntimeError('only this') from None

def in_a_group():
    raise ExceptionGroup('2 of 8 readers failed', [ValueError('the first'), TypeError('another')])

def asserted():
    kind = 'rows'
    assert kind == 'columns'
"""


@pytest.fixture
def module(tmp_path: Path) -> Callable[[str], ModuleType]:
    """Returns a function that imports a user's module."""

    def load(text: str) -> ModuleType:
        path = tmp_path / "my_model.py"
        path.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location("my_model", path)
        loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
        return loaded

    return load


def by_itself(function: Callable[[], object]) -> Exception:
    """Returns the same as :func:`raised`, without the frames of this file, which would count as a user's."""
    error = raised(function)
    return error.with_traceback(error.__traceback__.tb_next.tb_next)


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("while_handled", "ValueError: the first"),
        ("raised_in_the_end", "ValueError: the first"),
        ("lookup_explained", "ValueError: no activation is called gleu"),
        ("explained_by_from", "RuntimeError: line 3 of words.txt is not a number"),
        ("without_context", "RuntimeError: only this"),
        ("in_a_group", "ValueError: the first"),
        ("asserted", "AssertionError (assert kind == 'columns')"),
    ],
)
def test_which_of_several_exceptions_is_reported(module: Callable[[str], ModuleType], function: str, says: str) -> None:
    assert error_text(root_cause(raised(getattr(module(CHAINS), function)))) == says


def test_what_another_party_raises_while_it_handles_a_lookup_is_not_reported(
    module: Callable[[str], ModuleType],
) -> None:
    """A library that wraps every exception of its callers does not know more than they do."""
    lookup = raised(lambda: module("def read():\n    return {}['x']\n").read())
    wrapped = raised(lambda: gin.utils.augment_exception_message_and_reraise(lookup, "\n  In call to configurable 'f'"))
    assert error_text(root_cause(wrapped)) == "KeyError: 'x'"


def test_a_failed_operation_is_not_a_raise_statement() -> None:
    def refuse() -> None:
        raise ValueError

    assert is_deliberate(raised(refuse))
    assert not is_deliberate(raised(lambda: {}["x"]))
    assert not is_deliberate(raised(lambda: int("a")))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", "ValueError"),
        ("  \n ", "ValueError"),
        ("The batch of 12 is odd. Use another one. See the docs.", "ValueError: The batch of 12 is odd."),
        ("Oh no! The batch is odd. Use 2.", "ValueError: Oh no! The batch is odd."),
        ("Expected 3 e.g. of 1.5 x.y.\n\nDetails follow", "ValueError: Expected 3 e.g. of 1.5 x.y."),
        ("got <object object at 0x7f00>", "ValueError: got a object"),
        ("x" * 5000, f"ValueError: {'x' * 297}..."),
        ("bad\n  In call to configurable 'f' (<function f at 0x1>)", "ValueError: bad"),
    ],
)
def test_the_first_sentence_is_shown(text: str, shown: str) -> None:
    assert error_text(ValueError(text)) == shown


def test_a_text_that_cannot_be_made() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise TypeError

    assert error_text(Odd()) == "Odd: (its text is not available: TypeError)"


def test_jax_and_flax_hide_no_line_of_the_user(module: Callable[[str], ModuleType]) -> None:
    model = module(
        "import jax\nfrom flax import linen as nn\n\nclass Model(nn.Module):\n    @nn.compact\n"
        "    def __call__(self, x):\n"
        "        h = nn.Dense(3)(x)\n        return h @ x\n"
    ).Model()
    for filtering in ("off", "remove_frames", "quiet_remove_frames"):
        with _filtering(filtering):
            error = raised(lambda: jax.eval_shape(model.init, jax.random.PRNGKey(0), np.zeros((2, 4))))
        finding = explain(error, Stage.PLAN, None)
        assert finding.code == "USR01"
        assert str(finding.location).endswith("my_model.py:8")
        assert finding.message.partition(" raised ")[2].startswith("TypeError: dot_general requires")


@contextlib.contextmanager
def _filtering(mode: str) -> Iterator[None]:
    before = jax.config.jax_traceback_filtering
    jax.config.update("jax_traceback_filtering", mode)
    try:
        yield
    finally:
        jax.config.update("jax_traceback_filtering", before)


OWN = """
import abc

class Model(abc.ABC):
    def loss_fn(self, params, batch):
        pass

    @abc.abstractmethod
    def eval_fn(self):
        pass

class Lacks(Model):
    pass

def trim(dataset, length):
    return dataset
"""


@pytest.mark.parametrize(
    ("call", "line", "function"),
    [
        (lambda own: own.Model.loss_fn(None, 1, 2, 3), 5, "loss_fn"),
        (lambda own: own.trim(), 15, "trim"),
        (lambda own: own.Lacks(), 12, "Lacks"),
        (lambda own: seqio_utils.add_kwargs_to_transform(functools.partial(own.trim, lenght=1), length=3), 15, "trim"),
    ],
)
def test_what_a_library_calls_wrongly_is_the_users_function(
    module: Callable[[str], ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[[ModuleType], object],
    line: int,
    function: str,
) -> None:
    own = module(OWN)
    monkeypatch.setitem(sys.modules, "my_model", own)
    finding = explain(by_itself(functools.partial(call, own)), Stage.TRAIN, None)
    assert finding.code == "USR01"
    assert str(finding.location).endswith(f"my_model.py:{line}")
    assert f"{function} in " in finding.message
    assert " is not as its caller needs it: TypeError: " in finding.message
    assert finding.fix == f"correct {function}"


def test_a_call_that_a_library_refuses_is_not_the_users() -> None:
    assert users_callee(by_itself(lambda: utils.RestoreCheckpointConfig(paths="x"))) is None


def test_where_a_library_raised_is_named() -> None:
    error = by_itself(lambda: utils.RestoreCheckpointConfig(path="x", mode="nope"))
    finding = explain(error, Stage.RESOLVE, None)
    place = library_frame(error)
    assert place.file == "t5x/utils.py"
    assert finding.code == "RUN01"
    assert finding.message.startswith("T5X stopped with ValueError: ")
    assert finding.message.endswith(f", raised in {place}")
    layer = by_itself(lambda: nn.Dense(3).init(jax.random.PRNGKey(0), "x"))
    assert explain(layer, Stage.PLAN, None).message.startswith("Flax stopped with ")


def test_a_traced_function_of_a_library_is_named() -> None:
    from seqio import preprocessors

    dataset = tf.data.Dataset.from_tensors({"targets": [1]})
    error = raised(lambda: preprocessors.append_eos_after_trim(dataset, sequence_length=1, output_features=None))
    assert "seqio/preprocessors.py" in str(library_frame(error))


@pytest.mark.parametrize(
    ("code", "message", "fix"),
    [
        ("import os\nos.no_such\n", "my_tasks.py:2 raised AttributeError: module 'os' has no", "correct that line"),
        ("f = lambda: 1 / 0\nf()\n", "my_tasks.py:1 raised ZeroDivisionError: division by zero", "correct that line"),
        ("def split():\n    1 / 0\nsplit()\n", "split in my_tasks.py:2 raised ZeroDivisionError", "correct split"),
    ],
)
def test_who_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, message: str, fix: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_tasks.py").write_text(code)
    finding = explain(raised(lambda: runpy.run_path(str(tmp_path / "my_tasks.py"))), Stage.RESOLVE, None)
    assert (finding.code, finding.fix) == ("USR01", fix)
    assert finding.message.startswith(message)
    assert str(finding.location).startswith("my_tasks.py:")


def test_a_mistake_of_the_harness_is_not_blamed_on_t5x() -> None:
    finding = explain(by_itself(lambda: packed_rows([{}], {"inputs": 1})), Stage.RESOLVE, None)
    assert finding.code == "RUN12"
    assert (
        finding.message == "t5x-harness itself stopped with KeyError: 'inputs': neither T5X nor your code was running"
    )
    assert finding.fix == (
        "report it, with the traceback in the run's log, the Gin files and what `t5x-harness doctor` prints"
    )


def test_a_stage_that_stops_in_python_itself_is_named() -> None:
    error = by_itself(lambda: int("n/a"))
    assert explain(error, Stage.PLAN, None).message.startswith("plan stopped with ValueError: ")


@pytest.mark.parametrize(
    "text",
    [
        "{{function_node __wrapped__IteratorGetNext_output_types_8_device_/job:localhost}} could not convert: n/a\n\t "
        "[[{{node StringToNumber}}]] [Op:IteratorGetNext] name: ",
        "Error in user-defined function passed to MapDataset:25 transformation with iterator: Iterator::Root::Map: "
        "could not convert: n/a\n\t [[{{node StringToNumber}}]]",
    ],
)
def test_what_tensorflow_says_of_its_graphs_is_left_out(text: str) -> None:
    assert error_text(ValueError(text)) == "ValueError: could not convert: n/a"


def test_generated_code_is_not_the_users_line() -> None:
    """AutoGraph's conversions are in their own file, which cannot be opened."""
    code = compile("1 / 0", "__autograph_generated_10335_bc74f4b2.py", "exec")
    frame = user_frame(raised(lambda: eval(code, {})))
    assert frame is None or "__autograph_generated_" not in frame.file
