"""GIN01, GIN02, GIN03, GIN18, GIN21 and GIN27: macros that are unread, undefined or left open."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from t5x_harness.findings.rule import Example, Found, Rule, run_head
from t5x_harness.gin.program import BINDINGS, GinProgram, MacroBinding
from t5x_harness.gin.values import REQUIRED, format_value, is_required, macros_in
from t5x_harness.lint.classify import LEFT_TO_LAUNCHER
from t5x_harness.lint.edits import rename_bound, rename_macro_use
from t5x_harness.lint.rule import Context, where
from t5x_harness.lint.rules.modes import is_for_controller
from t5x_harness.spec import Mode, Severity
from t5x_harness.system.misspelling import closest, did_you_mean, meant

_HEAD = run_head("pretrain")


def _unread(context: Context) -> Iterator[MacroBinding]:
    """Yields the user's macros that reach no parameter, except those for a controller, which AUX04 reports."""
    for macro in context.program.macros.values():
        if macro.name in context.program.read_macros or context.in_t5x(macro.location):
            continue
        if not is_for_controller(context, macro):
            yield macro


@Rule(
    "GIN01",
    "macro that nothing reads, with a name close to one that is read",
    whole_program=True,
    severity=Severity.WARNING,
    why=(
        "A macro is only a name: Gin silently accepts a new one, and the run keeps the old value. "
        "With `BATCHSIZE = 4` the batch size stays 128."
    ),
    bad=Example(_HEAD + "BATCHSIZE = 4\n", at="BATCHSIZE"),
    good=Example(_HEAD + "BATCH_SIZE = 4\n"),
)
def misspelt_macro(context: Context) -> Iterator[Found]:
    """Finds each macro that nothing reads and whose name is close to one that is read."""
    program = context.program
    for macro in _unread(context):
        near = _close(program, macro.name)
        if near is None:
            continue
        kept = program.macros.get(near)
        keeps = f", so {near} stays {format_value(kept.value)}" if kept is not None else ""
        flag, equals = ("--gin.", "=") if macro.location.file == BINDINGS else ("", " = ")
        yield Found(
            f"nothing reads the macro {macro.name}{keeps}",
            macro,
            f"did you mean {near}? Write {flag}{near}{equals}{format_value(macro.value)}",
            edits=rename_bound(program, macro.location, macro.name, near) if _is_slip(program, macro, near) else (),
        )


def _close(program: GinProgram, name: str) -> str | None:
    """Returns the macro that may be meant by one that nothing reads; None if its former reader was bound again."""
    return closest(name, program.read_macros) if name not in program.former_readers else None


def _is_slip(program: GinProgram, macro: MacroBinding, near: str) -> bool:
    """Returns whether a macro is clearly misspelled: the values are alike, and its file does not bind the other one."""
    bound = [s for s in program.statements if isinstance(s, MacroBinding) and s.name == near]
    if meant(macro.name, program.read_macros) != near or any(s.location.file == macro.location.file for s in bound):
        return False
    return bool(bound) and all(is_required(s.value) or type(s.value) is type(macro.value) for s in bound)


@Rule(
    "GIN02",
    "macro that nothing reads",
    whole_program=True,
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
def unread_macro(context: Context) -> Iterator[Found]:
    """Finds each macro that nothing reads."""
    program = context.program
    for macro in _unread(context):
        if _close(program, macro.name) is None:
            reader = program.former_readers.get(macro.name)
            keep, instead = _why_kept(program, macro), ""
            if reader is not None:
                winner = program.final[reader.key]
                instead = f": {reader}, which read it, is {format_value(winner.value)} ({where(winner.location)})"
            yield Found(
                f"nothing reads the macro {macro.name} = {format_value(macro.value)}{instead}",
                macro,
                f"{'remove it' if keep is None else keep}, or use %{macro.name} in "
                f"{'the parameter that it is meant for' if reader is None else reader}",
                severity=None if keep is None else Severity.NOTE,
            )


def _why_kept(program: GinProgram, macro: MacroBinding) -> str | None:
    """Returns, as the text of a fix, why a macro that nothing reads should stay; None if it can be removed."""
    for other in program.statements:
        if isinstance(other, MacroBinding) and other.name == macro.name and is_required(other.value):
            return f"keep it, because {program.name_of(other.location.file)} declares it gin.REQUIRED"
    if not macro.location.included_from:
        return None
    # Any of T5X's run configs, not only this run's, may have a macro of this name.
    bound = re.compile(rf"^{re.escape(macro.name)} *=", re.MULTILINE)
    configs = sorted(Path(program.t5x_parent or "", "t5x/configs/runs").glob("*.gin"))
    shared = any(bound.search(path.read_text(encoding="utf-8")) for path in configs)
    return "keep it for other runs" if shared else None


@Rule(
    "GIN18",
    "macro that nothing defines",
    whole_program=True,
    why="Gin stops with `No bindings specified for 'MODEL/gin.macro'` and prints the whole config, a hundred lines.",
    bad=Example("include 't5x/configs/runs/pretrain.gin'\n", at="include 't5x/configs/runs/pretrain.gin'"),
    good=Example(run_head("pretrain")),
)
def undefined_macro(context: Context) -> Iterator[Found]:
    """Finds each macro that nothing defines, at its first use, and each that is defined in terms of itself."""
    for circle in _circles(context.program.macros):
        first = circle[0]
        way = ", ".join(f"{macro.name} = {format_value(macro.value)}" for macro in circle)
        yield Found(
            f"the macro {first.name} takes its value from itself, so that it has none: {way}",
            first,
            f"give {first.name} a value of its own",
        )
    for name, use in context.program.undefined_macros:
        others = [other for other in context.program.macros if other != str(use)]
        hint = did_you_mean(name, (*others, REQUIRED))
        if name == "MODEL":
            fix = "include a model's gin file, such as 't5x/examples/t5/t5_1_1/small.gin'"
        elif hint:
            fix = f"correct the name in {use}"
        else:
            fix = f"add {name} = ... or include the file that defines it"
        right = meant(name, others)
        yield Found(
            f"nothing defines the macro {name} that {use} reads{hint}",
            use,
            fix,
            edits=rename_macro_use(context.program, use.location, name, right) if right else (),
        )


def _circles(macros: Mapping[str, MacroBinding]) -> Iterator[list[MacroBinding]]:
    """Yields each cycle of macros that refer to one another once: Gin follows it until Python's stack is full."""
    known: set[str] = set()
    for start in macros:
        way: list[str] = []
        name = start
        while name in macros and name not in way and name not in known:
            way.append(name)
            name = next((macro.name for macro in macros_in(macros[name].value)), "")
        if name in way:
            yield [macros[step] for step in way[way.index(name) :]]
        known.update(way)


_TASK = _HEAD + ("MIXTURE_OR_TASK_NAME = 'my_task'\nTASK_FEATURE_LENGTHS = {'inputs': 8, 'targets': 8}\n")
_EVAL = run_head("eval") + "MIXTURE_OR_TASK_NAME = 'my_task'\nCHECKPOINT_PATH = 'gs://b/checkpoint_10'\n"


@Rule(
    "GIN03",
    "value left gin.REQUIRED",
    whole_program=True,
    why=(
        "T5X stops after half a minute of imports and names only the first missing value; here they are all listed. "
        f"Some paths ({', '.join(LEFT_TO_LAUNCHER)}) may stay open: the launch of the run gives them."
    ),
    bad=Example(_TASK, at="include 't5x/configs/runs/pretrain.gin'"),
    good=Example(_TASK + "TRAIN_STEPS = 100\nDROPOUT_RATE = 0.0\n"),
)
def required_left(context: Context) -> Iterator[Found]:
    """Finds each macro and parameter that is left open, except those that only training needs, which GIN27 reports."""
    for macro in context.program.required_macros:
        if macro.name not in LEFT_TO_LAUNCHER and not _is_of_training_only(context, macro):
            yield Found(
                f"{macro.name} is gin.REQUIRED and nothing gives it a value",
                macro,
                f"bind it below the includes ({macro.name} = ...) or pass --gin.{macro.name}=...",
            )
    for binding in context.program.final_bindings:
        if is_required(binding.value):
            message = f"{binding} is gin.REQUIRED and nothing gives it a value"
            yield Found(message, binding, f"bind it later: {binding} = ...")


def _is_of_training_only(context: Context, macro: MacroBinding) -> bool:
    """Returns whether the run evaluates or infers, and only parameters that training needs read the macro."""
    if context.program.mode not in (Mode.EVAL, Mode.INFER):
        return False
    readers = [b for b in context.program.final_bindings if macro.name in {m.name for m in macros_in(b.value)}]
    return bool(readers) and all(b.param == "dropout_rate" for b in readers)


@Rule(
    "GIN27",
    "value of training left gin.REQUIRED in another run",
    whole_program=True,
    why=(
        "T5X's model files declare `DROPOUT_RATE = %gin.REQUIRED`. Gin wants a value from every run that includes "
        "them, also where dropout is never applied."
    ),
    bad=Example(_EVAL, at="include 't5x/examples/t5/t5_1_1/tiny.gin'"),
    good=Example(_EVAL + "DROPOUT_RATE = 0.0\n"),
)
def required_by_model(context: Context) -> Iterator[Found]:
    """Finds each macro that a model's gin file requires but this run does not use."""
    for macro in context.program.required_macros:
        if _is_of_training_only(context, macro):
            yield Found(
                f"{macro.name} is gin.REQUIRED and nothing gives it a value; {context.program.mode} runs do not "
                "use it, but Gin wants one",
                macro,
                f"bind {macro.name} = 0.0 below the includes, or pass --gin.{macro.name}=0.0",
            )


@Rule(
    "GIN21",
    "macro declared gin.REQUIRED and bound in the same file",
    severity=Severity.NOTE,
    why=(
        "The last binding wins, so the macro needs no further value: who reads the first lines of the file learns "
        "something else. T5X's finetune.gin does so with MIXTURE_OR_TASK_MODULE."
    ),
    bad=Example("BATCH_SIZE = %gin.REQUIRED\n" + _TASK + "BATCH_SIZE = 8\n", at="BATCH_SIZE = %gin.REQUIRED"),
    good=Example(_TASK + "BATCH_SIZE = 8\n"),
)
def required_and_given(context: Context) -> Iterator[Found]:
    """Finds each macro that is declared required and bound further down in the same file, except in T5X's files."""
    for statement in context.program.statements:
        if not isinstance(statement, MacroBinding) or not is_required(statement.value):
            continue
        winner = context.program.macros[statement.name]
        places = {(s.location.file, s.location.included_from) for s in (winner, statement)}
        if len(places) == 1 and not is_required(winner.value) and not context.in_t5x(statement.location):
            yield Found(
                f"{statement} is declared gin.REQUIRED here and bound to {format_value(winner.value)} in line "
                f"{winner.location.line}: it is not required",
                statement,
                "remove one of the two",
            )
