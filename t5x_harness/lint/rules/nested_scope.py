"""GIN30: nested scopes that leave arguments behind."""

from __future__ import annotations

from collections.abc import Iterator

from t5x_harness.findings import examples
from t5x_harness.findings.rule import Example, Found, Mistake
from t5x_harness.gin.program import scope_chain
from t5x_harness.gin.values import Reference
from t5x_harness.lint.rule import Context, finds
from t5x_harness.spec import Severity

_HEAD = examples.head("pretrain", "import __main__ as train_script", "from t5x import utils")


GIN30 = Mistake(
    "GIN30",
    "NestedScope",
    "nested scope that does not take an inner scope's bindings",
    why=(
        "`@big/train/X()` takes the bindings of `big` and of `big/train`, and not those of `train`: what is bound "
        "there is missing, or stays at its default without a word."
    ),
    bad=Example(
        _HEAD + "train_script.train.train_dataset_cfg = @big/train/utils.DatasetConfig()\n",
        at="train_script.train.train_dataset_cfg",
    ),
    good=Example(_HEAD + "train_script.train.train_dataset_cfg = @train/utils.DatasetConfig()\n"),
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
