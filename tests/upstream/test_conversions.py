"""AutoGraph's conversions: made once, kept for later processes, and never taken from another user."""

import errno
import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest
import tensorflow as tf
from tensorflow.python.autograph.core import converter
from tensorflow.python.autograph.impl import api

from t5x_harness.upstream.autograph import KeptConversion, keep_conversions, place_of

SOURCE = """\
def double(x):
  if x > 1:
    x = x + x
  return x

def plus(y):
  return lambda x: x + y if y > 0 else x

def broken(x):
  x = x + 1
  raise ValueError("not today")

first, second = (lambda a: a + 1), (lambda b: b + 2)
"""

OPTIONS = converter.ConversionOptions(recursive=True, user_requested=False, optional_features=None)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the harness's own cache, which is in use."""
    folder = tmp_path / "compile-cache" / "jax-0"
    folder.mkdir(parents=True)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(folder))
    return folder


class Process:
    """An AutoGraph as a new process has it, with a count of what it converts."""

    def __init__(self) -> None:
        self.transpiler = api.PyToTF()
        self.converted: list[str] = []
        self.while_converting: Callable[[], object] = lambda: None
        transform = self.transpiler.transform_ast

        def transform_ast(node: Any, context: Any) -> Any:
            self.converted.append(context.info.name.removeprefix("tf__"))
            self.while_converting()
            return transform(node, context)

        self.transpiler.transform_ast = transform_ast

    def convert(self, function: Callable[..., Any]) -> Any:
        """Returns the conversion of a function."""
        return self.transpiler.transform(function, converter.ProgramContext(OPTIONS))[0]


@pytest.fixture
def new_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Process]:
    """Returns a function that makes an AutoGraph that keeps its conversions the one of TensorFlow."""

    def make() -> Process:
        process = Process()
        monkeypatch.setattr(api, "_TRANSPILER", process.transpiler)
        assert keep_conversions()
        return process

    return make


@pytest.fixture
def own(tmp_path: Path) -> SimpleNamespace:
    """A module of the user."""
    file = tmp_path / "own.py"
    file.write_text(SOURCE)
    names: dict[str, Any] = {"__name__": "own", "__file__": str(file)}
    exec(compile(SOURCE, file, "exec"), names)
    return SimpleNamespace(**names)


def results(function: Callable[..., Any]) -> list[int]:
    return list(tf.data.Dataset.range(4).map(function).as_numpy_iterator())


def test_a_conversion_is_made_once_and_leaves_no_other_file(
    new_process: Callable[[], Process],
    own: SimpleNamespace,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    for converted in (["double"], []):
        process = new_process()
        for _ in range(2):
            assert results(own.double) == [0, 1, 4, 6]
        assert [name for name in process.converted if name == "double"] == converted
        assert process.converted or not converted
    assert list(temporary.iterdir()) == []
    assert all(file.name.startswith("autograph-") and file.name.endswith("-cache") for file in cache.iterdir())


def test_functions_of_one_code_have_their_own_values_and_lambdas_of_one_line_are_told_apart(
    new_process: Callable[[], Process], own: SimpleNamespace
) -> None:
    for _ in range(2):
        process = new_process()
        assert results(own.plus(3)) == [3, 4, 5, 6]
        assert results(own.plus(0)) == [0, 1, 2, 3]
        assert results(own.first) == [1, 2, 3, 4]
        assert results(own.second) == [2, 3, 4, 5]
    assert process.converted == []


def test_an_error_in_a_kept_conversion_names_the_line_of_the_user(
    new_process: Callable[[], Process], own: SimpleNamespace
) -> None:
    for _ in range(2):
        process = new_process()
        with pytest.raises(ValueError, match="not today") as error:
            results(own.broken)
        assert f'File "{own.__file__}", line 11, in broken' in str(error.value)
    assert process.converted == []


def test_a_function_whose_file_has_changed_is_converted_again(
    new_process: Callable[[], Process], own: SimpleNamespace
) -> None:
    new_process().convert(own.double)
    os.utime(own.__file__, ns=(1, 1))
    process = new_process()
    process.convert(own.double)
    assert process.converted == ["double"]


def test_nothing_is_kept_elsewhere_than_in_the_harness_s_own_cache(
    new_process: Callable[[], Process], own: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for folder in (str(elsewhere), ""):
        monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", folder)
        for _ in range(2):
            process = new_process()
            assert process.convert(own.double)(tf.constant(3)).numpy() == 6
            assert process.converted == ["double"]
    assert list(elsewhere.iterdir()) == []


def test_a_function_without_a_file_is_converted_as_ever(new_process: Callable[[], Process], cache: Path) -> None:
    names: dict[str, Any] = {}
    exec(SOURCE, names)
    with pytest.raises(Exception, match="could not get source code"):
        new_process().convert(names["double"])
    assert list(cache.iterdir()) == []


def test_a_full_disk_leaves_no_half_of_a_conversion(
    new_process: Callable[[], Process], own: SimpleNamespace, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object, file: IO[bytes]) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pickle.dump", full)
    assert new_process().convert(own.double)(tf.constant(3)).numpy() == 6
    assert list(cache.iterdir()) == []


def test_half_a_file_is_replaced(new_process: Callable[[], Process], own: SimpleNamespace, cache: Path) -> None:
    new_process().convert(own.double)
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    for content in (whole[:-100], b"", pickle.dumps("something else")):
        file.write_bytes(content)
        process = new_process()
        process.convert(own.double)
        assert process.converted == ["double"]
        assert isinstance(pickle.loads(file.read_bytes()), KeptConversion)


def test_of_two_at_once_one_converts_and_the_other_takes_it(
    new_process: Callable[[], Process], own: SimpleNamespace
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    one, other = new_process(), new_process()
    one.while_converting = lambda: (begun.set(), go_on.wait(60))
    with ThreadPoolExecutor() as threads:
        first = threads.submit(one.convert, own.double)
        assert begun.wait(60)
        second = threads.submit(other.convert, own.double)
        go_on.set()
        assert first.result(60)(tf.constant(3)).numpy() == 6
        assert second.result(60)(tf.constant(3)).numpy() == 6
    assert one.converted == ["double"]
    assert other.converted == []


def test_whoever_waits_for_one_that_fails_converts_by_itself(
    new_process: Callable[[], Process], own: SimpleNamespace
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    one, other = new_process(), new_process()

    def fail() -> None:
        begun.set()
        go_on.wait(60)
        raise MemoryError

    one.while_converting = fail
    with ThreadPoolExecutor() as threads:
        first = threads.submit(one.convert, own.double)
        assert begun.wait(60)
        second = threads.submit(other.convert, own.double)
        go_on.set()
        with pytest.raises(MemoryError):
            first.result(60)
        assert second.result(60)(tf.constant(3)).numpy() == 6
    assert other.converted == ["double"]


class _Attack:
    """An object that another user may have put into the cache."""

    def __init__(self, evidence: Path) -> None:
        self.evidence = evidence

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.evidence,)


@pytest.mark.parametrize("owned", ["file", "folder", "folder above"])
def test_nothing_is_unpickled_that_another_user_may_have_written(
    new_process: Callable[[], Process], own: SimpleNamespace, cache: Path, tmp_path: Path, owned: str
) -> None:
    path = {"folder": cache, "folder above": cache.parent}.get(owned)
    evidence = tmp_path / "evidence"
    if path is None:
        path = place_of(own.double.__code__, OPTIONS.as_tuple())
        assert path is not None
        path.write_bytes(pickle.dumps(_Attack(evidence)))
        new_process().convert(own.double)
        assert evidence.exists()  # this user's own
        evidence.unlink()
        path.write_bytes(pickle.dumps(_Attack(evidence)))
    if os.getuid() == 0:
        os.chown(path, 12345, 12345)
    else:
        path.chmod(0o777 if path.is_dir() else 0o666)
    process = new_process()
    process.convert(own.double)
    assert process.converted == ["double"]
    assert not evidence.exists()
    assert owned == "file" or list(cache.iterdir()) == []
