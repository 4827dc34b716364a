"""GIN05: bindings that a scoped binding beats wherever the configurable is used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from t5x_harness.findings import examples
from t5x_harness.findings.rule import Example, Found, Mistake
from t5x_harness.gin.program import Binding
from t5x_harness.gin.values import format_value, same_value
from t5x_harness.lint.rule import Context, finds
from t5x_harness.spec import Severity

_HEAD = examples.head("pretrain", "from t5x import utils")


GIN05 = Mistake(
    "GIN05",
    "BeatenByScope",
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
