"""GIN05, GIN06 and GIN30: scopes that nothing opens, and bindings that a scope does not take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from t5x_harness.findings import examples
from t5x_harness.findings.rule import Example, Found, Mistake
from t5x_harness.gin.program import Binding, GinProgram, scope_chain
from t5x_harness.gin.values import Reference, format_value, same_value
from t5x_harness.lint.edits import rename_scope
from t5x_harness.lint.rule import Context, finds
from t5x_harness.spec import Edit, Severity
from t5x_harness.system.misspelling import closest, meant

_HEAD = examples.head("pretrain", "from t5x import utils")


GIN05 = Mistake(
    "GIN05",
    "binding beaten by a scoped one",
    severity=Severity.WARNING,
    why=(
        "For `@train/utils.DatasetConfig()` a binding of `train/utils.DatasetConfig.batch_size` beats one of "
        "`utils.DatasetConfig.batch_size`, wherever they stand. A train config uses the scopes train, train_eval and "
        "infer_eval."
    ),
    bad=Example(_HEAD + "utils.DatasetConfig.batch_size = 9\n", at="utils.DatasetConfig.batch_size"),
    good=Example(_HEAD + "train/utils.DatasetConfig.batch_size = 9\n"),
)


@finds(GIN05, whole_program=True)
def beaten_by_scope(context: Context) -> Iterator[Found]:
    """Finds each final binding that no use of its configurable takes."""
    program = context.program
    order = {id(statement): index for index, statement in enumerate(program.statements)}
    for binding in program.final_bindings:
        scopes = {r.scope for r, _ in program.uses(binding.target)}
        if not scopes or not all(_within(scope, binding.scope) for scope in scopes):
            continue  # used where this binding counts, where nothing is known, or not at all
        winners = [program.lookup(binding.target, binding.param, scope) for scope in sorted(scopes)]
        if any(w is None or w is binding for w in winners):
            continue
        beaten_by = [w for w in winners if isinstance(w, Binding) and not same_value(w.value, binding.value)]
        if all(_refines(order, w, binding) for w in beaten_by):
            continue
        first = beaten_by[0]
        names = ", ".join(dict.fromkeys(w.scope for w in beaten_by))
        yield Found(
            f"{binding} = {format_value(binding.value)} has no effect: {first} = {format_value(first.value)} "
            f"({first.location}) is more specific",
            binding,
            f"bind it in the scope that is used ({names}): {first} = {format_value(binding.value)}",
        )


def _within(scope: str, outer: str) -> bool:
    """Returns whether a call in ``scope`` takes bindings of ``outer``, and of something more specific."""
    return scope != outer and (outer == "" or scope.startswith(f"{outer}/"))


def _refines(order: Mapping[int, int], winner: Binding, beaten: Binding) -> bool:
    """Returns whether the more specific binding overrides the general one on purpose: below it, in the same file."""
    deeper = len(winner.location.included_from) > len(beaten.location.included_from)
    return order[id(winner)] > order[id(beaten)] and not deeper


_WITH_MAIN = examples.head("pretrain", "import __main__ as train_script", "from t5x import utils")


GIN30 = Mistake(
    "GIN30",
    "nested scope that does not take an inner scope's bindings",
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


@finds(GIN30, whole_program=True)
def nested_scope(context: Context) -> Iterator[Found]:
    """Finds calls in a nested scope: an error if an argument is missing, a warning if a default is taken."""
    for reference, statement in context.program.uses():
        inner = _inner_scopes(reference)
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


def _inner_scopes(reference: Reference) -> frozenset[str]:
    """Returns the scopes that a nested one names and does not open: for ``big/train`` it is ``train``."""
    parts = reference.scope.split("/")
    named = {"/".join(parts[i:j]) for i in range(1, len(parts)) for j in range(i + 1, len(parts) + 1)}
    return frozenset(named - set(scope_chain(reference.scope)))


_USUAL = ("train", "train_eval", "infer_eval")


GIN06 = Mistake(
    "GIN06",
    "scope that nothing opens",
    severity=Severity.WARNING,
    why="Scopes are free text: a misspelt one is a new one, and what is bound in it is never used.",
    bad=Example(_HEAD + "trian/utils.DatasetConfig.pack = False\n", at="trian/"),
    good=Example(_HEAD + "train/utils.DatasetConfig.pack = False\n"),
)


@finds(GIN06, whole_program=True)
def unknown_scope(context: Context) -> Iterator[Found]:
    """Finds each scope that nothing opens: a note for one of T5X's own that this run does not use."""
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
    """Gives every binding of a misspelt scope the scope that is meant."""
    right = meant(scope, program.used_scopes) or scope
    places = [binding.location for binding in program.bindings if binding.scope == scope]
    return tuple(dict.fromkeys(edit for place in places for edit in rename_scope(program, place, scope, right)))
