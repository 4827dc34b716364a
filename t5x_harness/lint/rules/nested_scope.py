"""GIN30: nested scopes that leave arguments behind."""

from __future__ import annotations

from collections.abc import Iterator

from t5x_harness.findings import examples
from t5x_harness.gin.program import scope_chain
from t5x_harness.gin.values import Reference
from t5x_harness.lint.rule import Context, Example, Rule
from t5x_harness.spec import Finding, Severity

_HEAD = examples.head("pretrain", "import __main__ as train_script", "from t5x import utils")


class NestedScope(Rule):
    """A call in ``big/train`` that is meant to take the bindings of ``train``."""

    code = "GIN30"
    title = "nested scope that does not take an inner scope's bindings"
    why = (
        "`@big/train/X()` takes the bindings of `big` and of `big/train`, and not those of `train`: what is bound "
        "there is missing, or stays at its default without a word."
    )
    bad = Example(
        _HEAD + "train_script.train.train_dataset_cfg = @big/train/utils.DatasetConfig()\n",
        at="train_script.train.train_dataset_cfg",
    )
    good = Example(_HEAD + "train_script.train.train_dataset_cfg = @train/utils.DatasetConfig()\n")
    whole_program = True

    def check(self, context: Context) -> Iterator[Finding]:
        """Yields an error where an argument is missing, a warning where a default is taken."""
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
            yield self.finding(
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
