"""Mutants of values: each parameter and macro that a case binds, or could bind, with values that it should not have."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from t5x_harness.gin.files import ModuleFinder
from t5x_harness.gin.program import MAIN, Binding, GinProgram, MacroBinding
from t5x_harness.gin.reader import read
from t5x_harness.gin.snapshot import Snapshot
from t5x_harness.gin.values import Reference, format_value
from t5x_harness.spec import RunSpec

from .mutant import PROJECT, Case, Mutant, replaced

_OTHER_TYPE = {bool: "'yes'", int: "[1]", float: "'a'", str: "7", list: "3", tuple: "3", dict: "[1]"}
_OBJECTS = ("@seqio.ByteVocabulary()", "@trainer.Trainer", "@models.EncoderDecoderModel()", "@utils.DatasetConfig()")
_ANY = (
    ("zero", "0"),
    ("negative", "-1"),
    ("tiny", "1e-30"),
    ("huge", "1e30"),
    ("infinite", "1e999"),
    ("huge and whole", "1000000000"),
)
_PROPERTIES = frozenset({"self", "cls"})


def program_of(case: Case, parent: str, folder: Path = PROJECT) -> GinProgram:
    """Reads the statements of a case.

    Args:
      case: the case.
      parent: the folder with the package ``t5x``.
      folder: the folder of the project, which may be a mutant's.
    """
    spec = RunSpec((case.file,), mode=case.mode, cwd=str(folder), python_path=(".",))
    return read(spec, t5x_parent=Path(parent))


def of_bound(case: Case, program: GinProgram) -> Iterator[Mutant]:
    """Yields mutants of every value that the case binds, in its own files or in those that it includes."""
    for statement in program.final.values():
        if isinstance(statement, Binding) and isinstance(program.resolve(statement), MacroBinding):
            continue  # it is mutated where the macro is bound
        for word, value in _wrong(statement.value):
            yield _bound(case, program, statement, f"value: {word}", value)
        if statement.location.file in (case.file, "model.gin"):
            yield _bound(case, program, statement, "value: removed", None)


def of_bindable(case: Case, program: GinProgram, parent: str) -> Iterator[Mutant]:
    """Yields mutants that bind a parameter that the case leaves at its default."""
    snapshot = Snapshot(Path(parent), ModuleFinder((str(PROJECT),), Path(parent)))
    owners = {b.target: b.selector for b in program.final_bindings if b.location.file == case.file} | {
        b.target: b.selector for b in program.final_bindings
    }
    bound = {(b.target, b.param) for b in program.final_bindings}
    for target, selector in sorted(owners.items()):
        configurable = snapshot.find(target)
        for param in (configurable.parameters or ()) if configurable else ():
            if (target, param) in bound or param in _PROPERTIES or configurable is None:
                continue
            default = configurable.defaults.get(param)
            for word, value in _wrong(default):
                name = f"{_selector(program, case, target, selector)}.{param}"
                yield _appended(case, f"bindable: {word}", f"{name} = {value}", (name, param))


def _wrong(value: Any) -> Iterator[tuple[str, str]]:
    """Yields values to put in place of another, as Gin text, each with a word for what is wrong with it."""
    same = ("None", "0") if value is False else ("None",) if value is None else (format_value(value),)
    if "None" not in same:
        yield "None", "None"
    for kind, other in _OTHER_TYPE.items():
        if type(value) is kind:
            yield "other type", other
    if isinstance(value, (bool, int, float)):
        yield "quoted", repr(str(value))
    if isinstance(value, str):
        yield "misspelt", repr(_misspelt(value))
    if isinstance(value, Reference):
        yield "text for an object", repr(value.selector)
        yield "another object", next(each for each in _OBJECTS if value.selector not in each)
        yield "not called" if value.called else "called", f"@{value.selector}{'' if value.called else '()'}"
    if not isinstance(value, (str, Reference, list, tuple, dict)):
        yield from ((word, text) for word, text in _ANY if text not in same)
    if isinstance(value, dict) and value:
        key = next(iter(value))
        yield "key misspelt", format_value({_misspelt(key) if k == key else k: v for k, v in value.items()})
        yield "key missing", format_value({k: v for k, v in value.items() if k != key})
        yield "value in it of other type", format_value({**value, key: str(value[key])})
        yield "value in it zero", format_value({**value, key: 0})
    if isinstance(value, (list, tuple)) and value:
        yield "empty", "()"
        yield "item of other type", format_value((7, *value[1:]))


def _misspelt(text: str) -> str:
    """Returns a text with two neighboring characters exchanged, or with one more if it is too short for that."""
    middle = len(text) // 2
    swapped = text[: middle - 1] + text[middle] + text[middle - 1] + text[middle + 1 :] if len(text) > 2 else text
    return swapped if swapped != text else f"{text}x"


def _bound(case: Case, program: GinProgram, statement: Binding | MacroBinding, kind: str, value: str | None) -> Mutant:
    """Changes a statement where it stands if that is the case's own line, or overrides it at the end of the file."""
    name = str(statement) if isinstance(statement, MacroBinding) else _name(program, case, statement)
    names = (name, name.rpartition(".")[2])
    if statement.location.file != case.file and value is not None:
        return _appended(case, kind, f"{name} = {value}", names)
    file, line = statement.location.file, statement.location.line
    text = (PROJECT / file).read_text(encoding="utf-8")
    old = text.splitlines()[line - 1]
    if value is None:
        return Mutant(case.name, kind, f"{name} is not bound", {file: replaced(text, line, "")}, file, 0, names)
    new = re.sub(r"=.*", lambda _: f"= {value}", old)
    return Mutant(case.name, kind, new.strip(), {file: replaced(text, line, new)}, file, line, names)


def _appended(case: Case, kind: str, statement: str, names: tuple[str, ...]) -> Mutant:
    text = f"{case.text}{statement}\n"
    return Mutant(case.name, kind, statement, {case.file: text}, case.file, text.count("\n"), names)


def _name(program: GinProgram, case: Case, binding: Binding) -> str:
    scope = f"{binding.scope}/" if binding.scope else ""
    return f"{scope}{_selector(program, case, binding.target, binding.selector)}.{binding.param}"


def _selector(program: GinProgram, case: Case, target: str, written: str) -> str:
    """Returns how the case's own file names a configurable, whose imports have other names than those of others."""
    for each in program.imports:
        module = each.module if each.module != MAIN else MAIN
        if each.location.file == case.file and target.startswith(f"{module}."):
            return f"{each.name}{target.removeprefix(module)}"
    return written
