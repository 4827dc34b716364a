"""GIN04, GIN05, GIN06, GIN30, GIN34 and GIN38: bindings that others undo, and those that nothing uses."""

import itertools
import re
from collections.abc import Iterator

from t5x_harness.findings.rule import Example, Found, Rule, run_head
from t5x_harness.gin.program import BINDINGS, ENTRIES, Binding, GinProgram, MacroBinding, scope_chain
from t5x_harness.gin.snapshot import LIBRARIES, Snapshot
from t5x_harness.gin.symbols import BUILTINS
from t5x_harness.gin.values import format_value, is_required, same_value
from t5x_harness.lint.domains import parameters_of
from t5x_harness.lint.edits import move_below, rename_scope
from t5x_harness.lint.rule import Context
from t5x_harness.spec import Edit, Location, Severity
from t5x_harness.system.misspelling import closest, meant


@Rule(
    "GIN04",
    "binding above the include that overrides it",
    severity=Severity.WARNING,
    why=(
        "An include is as if its text stood there, and the last statement wins: what is bound above it is lost, "
        "without a word from Gin. So are values of one included file that the next one sets, too, and those of a file "
        "that is given before the run's own."
    ),
    bad=Example(
        "include 't5x/examples/t5/t5_1_1/tiny.gin'\nBATCH_SIZE = 7\ninclude 't5x/configs/runs/pretrain.gin'\n",
        at="BATCH_SIZE",
    ),
    good=Example(run_head("pretrain") + "BATCH_SIZE = 7\n"),
)
def overridden_by_include(context: Context) -> Iterator[Found]:
    """Finds each binding whose value an include or a later file replaces with another."""
    program = context.program
    for statement in program.replaced:
        winner = program.final[statement.key]
        if is_required(statement.value) or same_value(statement.value, winner.value):
            continue
        if program.is_foreign(statement.location.file):
            continue
        if (undoing := _undoing(program, statement, winner)) is None:
            continue
        what, fix, include, severity = undoing
        yield Found(
            f"{statement} = {format_value(statement.value)} is lost: {what} sets it to "
            f"{format_value(winner.value)} ({winner.location})",
            statement,
            fix,
            severity=severity,
            edits=_moved(program, statement, include) if include is not None else (),
        )


def _undoing(
    program: GinProgram, early: Binding | MacroBinding, late: Binding | MacroBinding
) -> tuple[str, str, Location | None, Severity] | None:
    """Returns what undoes a value, the fix, the include to move the value below, and the severity; None if intended.

    A file may override another file's value if it includes that file or is given after it. One of T5X's defaults, a
    whole run that follows the value, and a statement that is read a second time are no overrides. If two includes of a
    file disagree about a macro, they may be layers, which is worth a note.
    """
    before, after = _chain(early.location), _chain(late.location)
    depth = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), None)
    if depth is None or late.location.file == BINDINGS:
        return None
    one, other = before[depth], after[depth]
    again = _was_read_before(program, late, early)
    is_default = again or program.is_foreign(late.location.file)
    read_again = f", or do not include {late.location.file} again" if again else ""
    if one.file != other.file:
        first, then = one.file, other.file
        if not is_default and not (_starts(program, then) and not _starts(program, first)):
            return None
        return (
            f"{then}, which is given after {first}{f' and includes {late.location.file} again' if again else ''},",
            f"give {first} after {then}{read_again}",
            None,
            Severity.WARNING,
        )
    if other.line <= one.line or len(after) == depth + 1:
        return None  # bound again in the same file: GIN34
    if len(before) == depth + 1:
        return f"the include in line {other.line}", f"move the binding below line {other.line}", other, Severity.WARNING
    name = f"{after[depth + 1].file}, which {other} includes after {before[depth + 1].file},"
    if is_default:
        fix = f"include {before[depth + 1].file} after {after[depth + 1].file}{read_again}"
        return name, fix, None, Severity.WARNING
    if not isinstance(early, MacroBinding):
        return None
    return name, f"bind {early} in one of the two, or below line {other.line} of {other.file}", None, Severity.NOTE


def _was_read_before(program: GinProgram, late: Binding | MacroBinding, early: Binding | MacroBinding) -> bool:
    """Returns whether an earlier include of its file already executed a statement before another one."""
    for statement in program.statements:
        if statement is early:
            return False
        at, there = statement.location, late.location
        is_same = isinstance(statement, (Binding, MacroBinding)) and statement.key == late.key
        if is_same and (at.file, at.line) == (there.file, there.line):
            return True
    return False


def _chain(place: Location) -> tuple[Location, ...]:
    """Returns the include statements that lead to a place, and the place itself."""
    return (*place.included_from, Location(place.file, place.line))


def _starts(program: GinProgram, named: str) -> bool:
    """Returns whether a file that the user named is the run, that is, binds the function that T5X calls."""
    started = (b.location for b in program.bindings if b.target in ENTRIES)
    return any((at.included_from[0] if at.included_from else at).file == named for at in started)


def _moved(program: GinProgram, statement: Binding | MacroBinding, include: Location) -> tuple[Edit, ...]:
    """Moves a binding below an include, unless another one between the two replaces it anyway."""
    here = statement.location
    for other in program.statements:
        place = other.location
        replaces = isinstance(other, (Binding, MacroBinding)) and other.key == statement.key
        if replaces and place.file == here.file and here.line < place.line < include.line:
            return ()
    return move_below(program, here, include.line)


@Rule(
    "GIN34",
    "bound twice in one file",
    severity=Severity.WARNING,
    why="The last binding wins silently: the first one is there for readers only, and misleads them.",
    bad=Example(run_head("pretrain") + "BATCH_SIZE = 8\nEVAL_PERIOD = 100\nBATCH_SIZE = 16\n", at="BATCH_SIZE = 8"),
    good=Example(run_head("pretrain") + "BATCH_SIZE = 16\nEVAL_PERIOD = 100\n"),
)
def bound_twice(context: Context) -> Iterator[Found]:
    """Finds each value that one file binds twice: a note if both values are the same."""
    again: dict[object, Binding | MacroBinding] = {}
    for statement in reversed(context.program.rivals):
        place = statement.location
        if place.file == BINDINGS:
            continue
        key = (statement.key, place.file, place.included_from)
        later = again.get(key)
        again[key] = statement
        if later is None or is_required(statement.value) or context.program.is_foreign(place.file):
            continue
        same = same_value(statement.value, later.value)
        second = "the same" if same else format_value(later.value)
        line = later.location.line
        yield Found(
            f"{statement} = {format_value(statement.value)} is bound again in line {line}, to {second}",
            statement,
            "remove one of the two",
            severity=Severity.NOTE if same else Severity.WARNING,
        )


_HEAD = run_head("pretrain", "from t5x import utils")


@Rule(
    "GIN05",
    "binding beaten by a scoped one",
    whole_program=True,
    severity=Severity.WARNING,
    why=(
        "For `@train/utils.DatasetConfig()` a binding of `train/utils.DatasetConfig.batch_size` beats one of "
        "`utils.DatasetConfig.batch_size`, wherever they stand. A train config uses the scopes train, train_eval and "
        "infer_eval."
    ),
    bad=Example(_HEAD + "utils.DatasetConfig.batch_size = 9\n", at="utils.DatasetConfig.batch_size"),
    good=Example(_HEAD + "train/utils.DatasetConfig.batch_size = 9\n"),
)
def beaten_by_scope(context: Context) -> Iterator[Found]:
    """Finds each final binding that no use of its configurable reads."""
    program = context.program
    opened: dict[str | None, set[str]] = {}
    for reference, _ in program.uses():
        opened.setdefault(reference.target, set()).add(reference.scope)
    for binding in program.final_bindings:
        scopes = opened.get(binding.target, set())
        # A call in a deeper scope takes this scope's bindings, and more specific ones.
        if not scopes or binding.scope in scopes or not all(binding.scope in scope_chain(s) for s in scopes):
            continue  # used in a scope where this binding counts, in an unknown scope, or not at all
        winners = [program.lookup(binding.target, binding.param, scope) for scope in sorted(scopes)]
        if any(w is None or w is binding for w in winners):
            continue
        beaten_by = [w for w in winners if isinstance(w, Binding) and not same_value(w.value, binding.value)]
        # The more specific binding overrides the general one on purpose if it is below it in the same file.
        depth, below = len(binding.location.included_from), _below(program, binding)
        if all(id(w) in below and len(w.location.included_from) <= depth for w in beaten_by):
            continue
        first = beaten_by[0]
        names = ", ".join(dict.fromkeys(w.scope for w in beaten_by))
        yield Found(
            f"{binding} = {format_value(binding.value)} has no effect: {first} = {format_value(first.value)} "
            f"({first.location}) is more specific",
            binding,
            f"bind it in the scope that is used ({names}): {first} = {format_value(binding.value)}",
        )


def _below(program: GinProgram, binding: Binding) -> frozenset[int]:
    """Returns the ids of the statements that are executed after a binding."""
    after = itertools.dropwhile(lambda statement: statement is not binding, program.statements)
    return frozenset(map(id, after)) - {id(binding)}


_WITH_MAIN = run_head("pretrain", "import __main__ as train_script", "from t5x import utils")


@Rule(
    "GIN30",
    "nested scope that does not take an inner scope's bindings",
    whole_program=True,
    why=(
        "`@big/train/X()` takes the bindings of `big` and of `big/train`, and not those of `train`: what is bound "
        "there is missing, or silently stays at its default."
    ),
    bad=Example(
        _WITH_MAIN + "train_script.train.train_dataset_cfg = @big/train/utils.DatasetConfig()\n",
        at="train_script.train.train_dataset_cfg",
    ),
    good=Example(_WITH_MAIN + "train_script.train.train_dataset_cfg = @train/utils.DatasetConfig()\n"),
)
def nested_scope(context: Context) -> Iterator[Found]:
    """Finds calls in a nested scope: an error if an argument is missing, a warning if a default is taken."""
    for reference, statement in context.program.uses():
        # The scopes that it names but does not open: `train` for `big/train`.
        parts = reference.scope.split("/")
        named = {"/".join(parts[i:j]) for i in range(1, len(parts)) for j in range(i + 1, len(parts) + 1)}
        inner = named - set(scope_chain(reference.scope))
        if not inner:
            continue
        lost = [
            binding
            for binding in context.program.final_bindings
            if binding.target == reference.target
            and binding.scope in inner
            and context.program.lookup(binding.target, binding.param, reference.scope) is None
        ]
        if not lost or reference.target is None:
            continue
        known = context.snapshot.find(reference.target)
        needed = [b for b in lost if known is not None and b.param in known.required]
        names = ", ".join(dict.fromkeys(b.param for b in needed or lost))
        effect = "so the call lacks" if needed and reference.called else "so these keep their defaults:"
        last = lost[-1].scope
        yield Found(
            f"{reference} does not take the bindings of {last}/{lost[-1].selector} ({lost[-1].location}), "
            f"{effect} {names}",
            statement,
            f"write {str(reference).replace(reference.scope, last, 1)}, or bind them in {reference.scope}/",
            severity=Severity.ERROR if needed and reference.called else Severity.WARNING,
        )


_USUAL = ("train", "train_eval", "infer_eval")


@Rule(
    "GIN06",
    "scope that nothing opens",
    whole_program=True,
    severity=Severity.WARNING,
    why="Scopes are free text: a misspelt one is a new one, and what is bound in it is never used.",
    bad=Example(_HEAD + "trian/utils.DatasetConfig.pack = False\n", at="trian/"),
    good=Example(_HEAD + "train/utils.DatasetConfig.pack = False\n"),
)
def unknown_scope(context: Context) -> Iterator[Found]:
    """Finds each scope that nothing opens: a note if it is one of T5X's own that this run does not use."""
    program = context.program
    said: set[str] = set()
    for binding in program.final_bindings:
        scope = binding.scope
        if not scope or scope in program.used_scopes or scope in said:
            continue
        said.add(scope)
        near = None if scope in _USUAL else closest(scope, program.used_scopes)
        if near is not None:
            yield Found(
                f"nothing opens the scope {scope}, so {binding} has no effect",
                binding,
                f"did you mean {near}/?",
                edits=_renamed(program, scope) if meant(scope, program.used_scopes) == near else (),
            )
            continue
        severity = Severity.NOTE if scope in _USUAL else Severity.WARNING
        yield Found(
            f"no reference opens the scope {scope}, so {binding} has no effect unless Python code opens it",
            binding,
            f"use it in a reference (@{scope}/{binding.selector}), or remove the bindings",
            severity=severity,
        )


def _renamed(program: GinProgram, scope: str) -> tuple[Edit, ...]:
    """Gives every binding in a misspelled scope the scope that is meant."""
    right = meant(scope, program.used_scopes) or scope
    places = [binding.location for binding in program.bindings if binding.scope == scope]
    return tuple(dict.fromkeys(edit for place in places for edit in rename_scope(program, place, scope, right)))


@Rule(
    "GIN38",
    "binding that nothing reads",
    whole_program=True,
    severity=Severity.NOTE,
    why=(
        "Under dynamic registration Gin passes bindings only to what a reference calls. T5X's own default for a "
        "parameter, such as seqio.Evaluator, is the class itself, which gets none of them. A learning rate schedule "
        "reads only what its factors need."
    ),
    later="After a run it also knows which arguments each call of what is bound gives itself.",
    bad=Example(run_head("pretrain", "import seqio") + "seqio.Evaluator.num_examples = 8\n", at="seqio.Evaluator"),
    good=Example(
        run_head("pretrain", "import seqio", "import __main__ as train_script")
        + "train_script.train.inference_evaluator_cls = @seqio.Evaluator\nseqio.Evaluator.num_examples = 8\n"
    ),
)
def unreferenced(context: Context) -> Iterator[Found]:
    """Finds each function or class of T5X and its libraries that the user binds, but no value refers to."""
    yield from _unread(context)
    program, snapshot = context.program, context.snapshot
    used = {reference.target for reference, _ in program.uses()}
    if any(_asks_gin(snapshot, target) for target in used if target):
        return
    bound: dict[str, list[Binding]] = {}
    for binding in program.final_bindings:
        if not program.is_foreign(binding.location.file) and binding.target not in used:
            bound.setdefault(binding.target, []).append(binding)
    for target, bindings in bound.items():
        module = target.rpartition(".")[0]
        # What its module registers itself gets its bindings from any caller; methods get those of their class.
        is_plain = bool(parameters_of(target)) and snapshot.module_of(target) == module and target not in ENTRIES
        if not is_plain or snapshot.mentions(module, "configurable", anywhere=True):
            continue
        others = f" and {len(bindings) - 1} more" if bindings[1:] else ""
        has = "have" if others else "has"
        yield Found(
            f"no value refers to {bindings[0].selector}, so {bindings[0]}{others} {has} no effect",
            bindings[0],
            f"bind @{bindings[0].selector} where it is needed, or remove what is bound for it",
        )


def _asks_gin(snapshot: Snapshot, target: str) -> bool:
    """Returns whether a user's module asks Gin for what others are bound to, as the trainer for preempted jobs does."""
    module = snapshot.module_of(target)
    is_users = module is not None and not module.startswith((BUILTINS, "t5x.", *LIBRARIES))
    return is_users and snapshot.mentions(str(module), "get_bindings", anywhere=True)


def _unread(context: Context) -> Iterator[Found]:
    """Finds each parameter of the user's that another one's text leaves unread."""
    program = context.program
    for binding in program.final_bindings:
        known = parameters_of(binding.target).get(binding.param)
        if known is None or known.read_with is None or program.is_foreign(binding.location.file):
            continue
        if not program.resolve(binding).value:
            continue  # 0 says that there is to be none
        name, words = known.read_with
        other, configurable = program.lookup(binding.target, name, binding.scope), context.snapshot.find(binding.target)
        default = configurable.defaults.get(name) if configurable is not None else None
        text = program.resolve(other).value if other is not None else default
        if isinstance(text, str) and not set(words) & set(re.findall(r"\w+", text)):
            yield Found(
                f"{binding} = {format_value(binding.value)} has no effect: {name} is {text!r}, and without "
                f"{' or '.join(words)} nothing reads it",
                binding,
                f"add {words[0] if len(words) == 1 else 'one of them'} to {name}, or remove it",
            )
