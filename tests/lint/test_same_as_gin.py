"""The reader's result for a config equals Gin's state after parsing it: the same bindings with the same values."""

import contextlib
import functools
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gin
import pytest
from gin import config as gin_config
from hypothesis import example, given, settings
from hypothesis import strategies as st

from t5x_harness.gin.program import BINDINGS, Binding, GinProgram, MacroBinding
from t5x_harness.gin.reader import read
from t5x_harness.gin.values import Macro, Reference
from t5x_harness.lint.stage import lint_program
from t5x_harness.spec import RunSpec

_MODULE = "same_as_gin_dummies"
_SOURCE = """
def fun(x=None, y=None, z=None): ...

class Thing:
    def __init__(self, x=None, y=None, z=None): ...
    def method(self, x=None): ...
"""


@contextlib.contextmanager
def _dummies() -> Iterator[None]:
    """Provides a module that configs may import, and restores Gin's state afterwards."""
    registry = (gin_config._REGISTRY.copy(), dict(gin_config._INVERSE_REGISTRY), dict(gin_config._RENAMED_SELECTORS))
    tree = _deep(registry[0]._selector_tree)
    prefixes = list(gin_config._LOCATION_PREFIXES)
    package, module = types.ModuleType(_MODULE), types.ModuleType(f"{_MODULE}.inner")
    for each in (package, module):
        source = _SOURCE.replace("...", "pass")
        exec(source, each.__dict__)
    package.inner = module  # type: ignore[attr-defined]
    package.__path__ = []
    sys.modules.update({_MODULE: package, f"{_MODULE}.inner": module})
    gin.clear_config()
    try:
        yield
    finally:
        gin.clear_config()
        for name in (_MODULE, f"{_MODULE}.inner"):
            sys.modules.pop(name)
        gin_config._REGISTRY._selector_map = registry[0]._selector_map
        gin_config._REGISTRY._selector_tree = tree
        gin_config._INVERSE_REGISTRY.clear()
        gin_config._INVERSE_REGISTRY.update(registry[1])
        gin_config._RENAMED_SELECTORS.clear()
        gin_config._RENAMED_SELECTORS.update(registry[2])
        gin_config._LOCATION_PREFIXES[:] = prefixes


def _deep(tree: Any) -> Any:
    return {key: _deep(value) for key, value in tree.items()} if isinstance(tree, dict) else tree


def _of_gin(value: Any) -> Any:
    """Returns one of Gin's values as the reader writes it; the test itself checks the names of configurables."""
    if isinstance(value, gin_config.ConfigurableReference):
        name = value.configurable.selector
        if name == "gin.macro" and value.evaluate:
            return ("%", "/".join(value.scopes))
        if name == "gin.constant":
            return ("%", "/".join(value.scopes).removeprefix("gin."))
        wrapped = value.configurable.wrapped
        return ("@", "/".join(value.scopes), f"{wrapped.__module__}.{wrapped.__qualname__}", value.evaluate)
    if isinstance(value, dict):
        return [(_of_gin(k), _of_gin(v)) for k, v in value.items()]
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [_of_gin(item) for item in value])
    return repr(value)


def _of_reader(value: Any) -> Any:
    if isinstance(value, Macro):
        return ("%", value.name.removeprefix("gin."))
    if isinstance(value, Reference):
        return ("@", value.scope, value.target, value.called)
    if isinstance(value, dict):
        return [(_of_reader(k), _of_reader(v)) for k, v in value.items()]
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [_of_reader(item) for item in value])
    return repr(value)


def _gin_holds() -> dict[tuple[str, str, str], Any]:
    held = {}
    for (scope, selector), bound in gin_config._CONFIG.items():
        wrapped = gin_config._REGISTRY[selector].wrapped
        name = selector if selector == "gin.macro" else f"{wrapped.__module__}.{wrapped.__qualname__}"
        for parameter, value in bound.items():
            held[scope, name, parameter] = _of_gin(value)
    return held


def _reader_holds(program: GinProgram) -> dict[tuple[str, str, str], Any]:
    return {statement.key: _of_reader(statement.value) for statement in program.final.values()}


_HEADS = (
    f"from __gin__ import dynamic_registration\nimport {_MODULE}\nfrom {_MODULE} import inner\n",
    f"from __gin__ import dynamic_registration\nimport {_MODULE} as d\nimport {_MODULE}.inner as inner\n",
    f"from __gin__ import dynamic_registration  # here\n\nimport {_MODULE}.inner\nfrom {_MODULE} import inner\n",
    "",
)
_OWN = (
    (f"{_MODULE}.fun", f"{_MODULE}.Thing", "inner.fun", "inner.Thing", f"{_MODULE}.inner.fun"),
    ("d.fun", "d.Thing", "inner.fun", "inner.Thing", "d.inner.Thing"),
    (f"{_MODULE}.inner.fun", f"{_MODULE}.Thing", "inner.Thing", "inner.fun"),
    (),
)
_ANY = ("fun", "Thing", "inner.fun", "inner.Thing", f"{_MODULE}.fun", "nothing.fun", "d.fun")
_SCOPES = st.sampled_from(["", "", "", "a/", "train/", "a/b/", "b/a/"])
_MACROS = st.sampled_from(["A", "B", "C", "a/A", "LONG_NAME"])
_TRIVIA = st.sampled_from(["", "", "", "  # why", "   "])
_BETWEEN = st.sampled_from(["", "", "\n", "# a comment: x = 1\n", "  # indented\n", "\n\n", "\x0c\n"])


@functools.cache
def _values(names: tuple[str, ...]) -> st.SearchStrategy[str]:
    reference = st.builds("@{}{}{}".format, _SCOPES, st.sampled_from(names), st.sampled_from(["", "()", "( )"]))
    leaf = (
        st.integers().map(repr)
        | st.floats(allow_nan=False, allow_infinity=False).map(repr)
        | st.text(max_size=6).map(repr)
        | st.text(alphabet="a #='\x85\u2028\\é", max_size=5).map(lambda t: f'"{t}"')
        | st.sampled_from(
            ["None", "True", "-1", "1_000", "0x1F", "1e6", "'a' 'b'", "'a'\n  'b'", "'''x\ny'''", "b'q'", "- 3"]
        )
        | _MACROS.map("%{}".format)
        | st.just("%gin.REQUIRED")
        | (reference if names else st.nothing())
    )
    gap = st.sampled_from(["", " ", "\n  ", "\n", " # why\n  ", "\n\n    "])

    def items(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.lists(st.builds("{}{}{},".format, gap, inner, gap), max_size=3).map("".join)

    def pair(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.builds("{!r}:{}{}".format, st.text(max_size=3) | st.integers(), gap, inner)

    return st.recursive(
        leaf,
        lambda inner: (
            items(inner).map("[{}]".format)
            | items(inner).map("({})".format)
            | inner.map("({})".format)
            | items(pair(inner)).map("{{{}}}".format)
        ),
        max_leaves=5,
    )


@st.composite
def _statements(draw: st.DrawFn, head: int, *, includes: list[str]) -> str:
    names = (*_OWN[head], *_ANY) if head == 3 or draw(st.integers(0, 9)) == 9 else _OWN[head]
    value = _values(names)
    kind = draw(st.sampled_from(["macro", "macro", "binding", "binding", "block", "include", "continued"]))
    text = draw(_BETWEEN)
    if kind == "include" and includes:
        return text + f"include {draw(st.sampled_from(includes))!r}{draw(_TRIVIA)}\n"
    if kind == "binding":
        name, parameter = draw(st.sampled_from(names)), draw(st.sampled_from("xyz"))
        return text + f"{draw(_SCOPES)}{name}.{parameter} = {draw(value)}{draw(_TRIVIA)}\n"
    if kind == "block":
        lines = [
            f"  {draw(st.sampled_from('xyz'))} = {draw(value)}{draw(_TRIVIA)}\n"
            + draw(st.sampled_from(["", "", "  # c\n", "\n"]))
            for _ in range(draw(st.integers(1, 3)))
        ]
        return text + f"{draw(_SCOPES)}{draw(st.sampled_from(names))}:{draw(_TRIVIA)}\n" + "".join(lines)
    if kind == "continued":
        return text + f"{draw(_MACROS)} = \\\n    {draw(value)}\n"
    return text + f"{draw(_MACROS)} = {draw(value)}{draw(_TRIVIA)}\n"


@st.composite
def _files(draw: st.DrawFn) -> tuple[dict[str, str], list[str], list[str]]:
    """Generates gin files by name, the names of those that are run, and bindings after them."""
    names = ["one.gin", "conf/two.gin", "search/three.gin", "run.gin"]
    reachable = ["one.gin", "conf/two.gin", "three.gin"]
    files = {}
    for index, name in enumerate(names):
        head = draw(st.integers(0, 3))
        body = draw(st.lists(_statements(head, includes=reachable[:index]), min_size=1, max_size=6))
        files[name] = _HEADS[head] + "".join(body)
    runs = draw(st.sampled_from([["run.gin"], ["one.gin", "run.gin"], ["run.gin", "three.gin"], ["conf/two.gin"]]))
    bindings = draw(st.lists(_statements(3, includes=reachable).map(str.strip), max_size=2))
    return files, runs, bindings


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder that has the module on disk, where the reader can find it, and is used for every example."""
    folder = tmp_path_factory.mktemp("configs")
    package = folder / "src" / _MODULE
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(_SOURCE, encoding="utf-8")
    (package / "inner.py").write_text(_SOURCE, encoding="utf-8")
    return folder


@contextlib.contextmanager
def _written(files: dict[str, str], folder: Path) -> Iterator[None]:
    """Writes an example's files, and removes them afterwards."""
    for file, text in files.items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(text, encoding="utf-8", newline="")
    try:
        yield
    finally:
        for file in files:
            (folder / file).unlink()


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
@settings(max_examples=200, deadline=None)
@given(_files())
@example(({"run.gin": "A = {'': @nothing.fun, '': 1}\n"}, ["run.gin"], []))
@example(({"run.gin": "fun:\n  x = 1\n  y = {'': @nothing.fun, '': 1}\n"}, ["run.gin"], []))
def test_the_final_bindings_are_those_of_gin(folder: Path, config: tuple[dict[str, str], list[str], list[str]]) -> None:
    files, runs, bindings = config
    with _written(files, folder), _dummies(), contextlib.chdir(folder):
        gin.add_config_file_search_path("search")
        complaint = _gin_complaint(runs, bindings)
        program = _read_with_dummies(folder, runs, bindings)
        if complaint is None:
            assert program.problems == ()
            assert _reader_holds(program) == _gin_holds()
            _assert_places(program, files, bindings)
        else:
            assert program.problems or program.not_checked, complaint


_SLIPS = ("\u00a0", "\u200b", "\ufeff", "\u2019", "\t", "\\", *"'(./@%=: \nx1")
_OF_READING = frozenset({"GIN07", "GIN10", "GIN11", "GIN13", "GIN14", "GIN15", "GIN16", "GIN19", "GIN29", "GIN32"})
"""The codes that lint reports as errors because Gin stops at these mistakes while it reads."""


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
@settings(max_examples=80, deadline=None)
@given(_files(), st.data())
def test_a_slip_is_an_error_where_gin_refuses_it(
    folder: Path, config: tuple[dict[str, str], list[str], list[str]], data: st.DataObject
) -> None:
    files, runs, _ = config
    name = data.draw(st.sampled_from(sorted(files)))
    text = files[name]
    at = data.draw(st.integers(0, len(text) - 1))
    put = data.draw(st.sampled_from(["", text[at] * 2, text[at : at + 2][::-1], *_SLIPS]))
    files[name] = text[:at] + put + text[at + data.draw(st.integers(0, 1)) :]
    with _written(files, folder), _dummies(), contextlib.chdir(folder):
        gin.add_config_file_search_path("search")
        complaint = _gin_complaint(runs, [])
        program = _read_with_dummies(folder, runs, [])
        result = lint_program(program)
    errors = [f"{f.location}: {f.code} {f.message}" for f in result.errors if f.code in _OF_READING]
    if complaint is None:
        assert errors == []
    else:
        assert errors or program.not_checked, complaint


def _assert_places(program: GinProgram, files: dict[str, str], bindings: list[str]) -> None:
    """Asserts that the line of each final value names what it binds, and that its includes are at their places."""
    for statement in program.final.values():
        name = statement.param if isinstance(statement, Binding) else statement.name.split("/")[-1]
        place = statement.location
        text = bindings[place.line - 1] if place.file == BINDINGS else files[place.file].split("\n")[place.line - 1]
        assert name in text or (isinstance(statement, MacroBinding) and "gin.macro" in text)
        for include in place.included_from:
            assert include.file == BINDINGS or "include" in files[include.file].split("\n")[include.line - 1]


def _gin_complaint(runs: list[str], bindings: list[str]) -> str | None:
    try:
        gin.parse_config_files_and_bindings(runs, bindings, finalize_config=False)
    except Exception as error:  # any exception of Gin is its answer
        return f"{type(error).__name__}: {error}"
    return None


def _read_with_dummies(folder: Path, runs: list[str], bindings: list[str]) -> GinProgram:
    spec = RunSpec(tuple(runs), tuple(bindings), search_paths=("search",), python_path=("src",), cwd=os.fspath(folder))
    return read(spec, t5x_parent=None)
