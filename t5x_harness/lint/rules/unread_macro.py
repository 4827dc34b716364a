"""GIN01 and GIN02: macros that nothing reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from t5x_harness.findings import examples
from t5x_harness.findings.rule import Example, Found, Mistake
from t5x_harness.gin.program import BINDINGS, Binding, GinProgram, MacroBinding
from t5x_harness.gin.values import format_value, is_required
from t5x_harness.lint.edits import rename_bound
from t5x_harness.lint.rule import Context, finds, where
from t5x_harness.lint.rules.auxiliary_job import is_for_controller
from t5x_harness.spec import Severity
from t5x_harness.system.misspelling import closest, meant

_HEAD = examples.head("pretrain")


def _unread(context: Context) -> Iterator[MacroBinding]:
    """Macros of the user's that reach no parameter; AUX04 has those for a controller."""
    for macro in context.program.macros.values():
        if macro.name in context.program.read_macros or context.in_t5x(macro.location):
            continue
        if not is_for_controller(context, macro):
            yield macro


GIN01 = Mistake(
    "GIN01",
    "MisspeltMacro",
    "macro that nothing reads, with a name close to one that is read",
    severity=Severity.WARNING,
    why=(
        "A macro is only a name: Gin accepts a new one without a word, and the run keeps the old value. "
        "With `BATCHSIZE = 4` the batch size stays 128."
    ),
    bad=Example(_HEAD + "BATCHSIZE = 4\n", at="BATCHSIZE"),
    good=Example(_HEAD + "BATCH_SIZE = 4\n"),
)


@finds(GIN01, whole_program=True)
def misspelt_macro(context: Context) -> Iterator[Found]:
    """Finds each macro that nothing reads and whose name is close to one that is read."""
    program = context.program
    for macro in _unread(context):
        near = _close(program, macro.name)
        if near is None:
            continue
        kept = program.macros.get(near)
        keeps = f", so {near} stays {format_value(kept.value)}" if kept is not None else ""
        yield Found(
            f"nothing reads the macro {macro.name}{keeps}",
            macro,
            f"did you mean {near}? Write {_assignment(macro, near)}",
            edits=rename_bound(program, macro.location, macro.name, near) if _is_slip(program, macro, near) else (),
        )


def _close(program: GinProgram, name: str) -> str | None:
    """Returns the macro that may be meant by one that nothing reads; None if its former reader was bound anew."""
    return closest(name, program.read_macros) if name not in program.former_readers else None


def _is_slip(program: GinProgram, macro: MacroBinding, near: str) -> bool:
    """Returns whether a macro is surely a misspelling: values are alike, and its file does not bind the other one."""
    bound = [s for s in program.statements if isinstance(s, MacroBinding) and s.name == near]
    if meant(macro.name, program.read_macros) != near or any(s.location.file == macro.location.file for s in bound):
        return False
    return bool(bound) and all(is_required(s.value) or type(s.value) is type(macro.value) for s in bound)


GIN02 = Mistake(
    "GIN02",
    "UnreadMacro",
    "macro that nothing reads",
    severity=Severity.WARNING,
    why=(
        "A macro that no parameter reads has no effect: the run uses whatever the parameter was bound to instead. A "
        "note where an included file, which runs may share, binds a macro that others of T5X's run configs read."
    ),
    bad=Example(_HEAD + "NUM_EMBEDDINGS = 250112\n", at="NUM_EMBEDDINGS"),
    good=Example(
        _HEAD + "from __gin__ import dynamic_registration\nfrom t5x.examples.t5 import network\n"
        "network.T5Config.vocab_size = 250112\n"
    ),
)


@finds(GIN02, whole_program=True)
def unread_macro(context: Context) -> Iterator[Found]:
    """Finds each macro that nothing reads."""
    program = context.program
    for macro in _unread(context):
        if _close(program, macro.name) is None:
            reader = program.former_readers.get(macro.name)
            keep = _why_kept(program, macro)
            yield Found(
                f"nothing reads the macro {macro.name} = {format_value(macro.value)}{_instead(program, reader)}",
                macro,
                f"{'remove it' if keep is None else keep}, or use %{macro.name} in "
                f"{'the parameter that it is meant for' if reader is None else reader}",
                severity=None if keep is None else Severity.NOTE,
            )


def _why_kept(program: GinProgram, macro: MacroBinding) -> str | None:
    """Returns why a macro that nothing reads is bound all the same, as a fix; None where it can go."""
    for other in program.statements:
        if isinstance(other, MacroBinding) and other.name == macro.name and is_required(other.value):
            return f"keep it, because {program.name_of(other.location.file)} declares it gin.REQUIRED"
    shared = bool(macro.location.included_from) and _is_of_run_configs(program, macro.name)
    return "keep it for other runs" if shared else None


def _instead(program: GinProgram, reader: Binding | MacroBinding | None) -> str:
    """Returns what stands in place of the value that read a macro."""
    if reader is None:
        return ""
    winner = program.final[reader.key]
    return f": {reader}, which read it, is {format_value(winner.value)} ({where(winner.location)})"


def _is_of_run_configs(program: GinProgram, name: str) -> bool:
    """Returns whether one of T5X's run configs, which need not be this run's, has a macro of this name."""
    folder = Path(program.t5x_parent or "") / "t5x/configs/runs"
    bound = re.compile(rf"^{re.escape(name)} *=", re.MULTILINE)
    return any(bound.search(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.gin")))


def _assignment(macro: MacroBinding, name: str) -> str:
    if macro.location.file == BINDINGS:
        return f"--gin.{name}={format_value(macro.value)}"
    return f"{name} = {format_value(macro.value)}"
