"""SEQ15 and SEQ16: feature lengths that do not fit the features or the data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.resolve import examples
from t5x_harness.resolve.rule import Example, ResolveRule
from t5x_harness.spec import Finding, Severity

if TYPE_CHECKING:
    from t5x_harness.resolve.resolved import Resolved

_MOSTLY = 0.5
"""Share of truncated examples from which on it is hardly meant."""


class FeatureLengths(ResolveRule):
    """Lengths for other features than the model's."""

    code = "SEQ15"
    title = "feature without a length, or a length without a feature"
    why = "T5X builds the model, restores and only then refuses the lengths, on the TPU."
    bad = Example(
        examples.trained("TASK_FEATURE_LENGTHS = {'inputs': 32}"), files=examples.FILES, at="TASK_FEATURE_LENGTHS"
    )
    good = Example(examples.trained("TASK_FEATURE_LENGTHS = {'inputs': 32, 'targets': 32}"), files=examples.FILES)

    def check(self, run: Resolved) -> Iterator[Finding]:
        """Yields a finding for each dataset whose lengths do not fit the model's feature converter."""
        needed = set(getattr(run.model.FEATURE_CONVERTER_CLS, "TASK_FEATURES", {}))
        for role in run.roles:
            lengths = role.dataset.task_feature_lengths
            if lengths is None or not needed:
                continue
            for names, what, mend in (
                (needed - set(lengths), "lacks", "add"),
                (set(lengths) - needed, "has besides", "remove"),
            ):
                if names:
                    listed = ", ".join(sorted(names))
                    yield self.finding(
                        run.config,
                        f"task_feature_lengths is {dict(lengths)} and {what} {listed}; the model takes "
                        f"{', '.join(sorted(needed))}",
                        role.key(run.config, "task_feature_lengths"),
                        f"{mend} {listed}",
                    )


class Truncation(ResolveRule):
    """Lengths that cut off most of the data."""

    code = "SEQ16"
    severity = Severity.WARNING
    title = "feature lengths that truncate most examples"
    why = "What is beyond the length is cut without a word; lengths copied from another task hide most of this one."
    bad = Example(
        examples.trained("TASK_FEATURE_LENGTHS = {'inputs': 32, 'targets': 2}"),
        files=examples.files("'targets': ['1 2', '3']", "'targets': ['1 2', '3 4']"),
        at="TASK_FEATURE_LENGTHS",
    )
    good = Example(examples.trained(), files=examples.FILES)

    def check(self, run: Resolved) -> Iterator[Finding]:
        """Yields a finding for each feature of which most sampled examples lose a part."""
        for role, sample in run.sampled():
            for feature, length in (role.dataset.task_feature_lengths or {}).items():
                share = sample.truncated(feature, length) if sample.whole else 0.0
                if share > _MOSTLY:
                    yield self.finding(
                        run.config,
                        f"{share:.0%} of the sampled examples of {sample.task.name} {sample.split} lose part of "
                        f"{feature}: the length is {length} and they have up to {sample.longest(feature)} tokens",
                        role.key(run.config, "task_feature_lengths"),
                        f"raise the length of {feature}, or mean it",
                    )
