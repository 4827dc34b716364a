"""SEQ14: targets that never end."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.findings import examples
from t5x_harness.findings.examples import training
from t5x_harness.resolve.rule import ResolveRule
from t5x_harness.spec import Finding, Severity

if TYPE_CHECKING:
    from t5x_harness.resolve.resolved import Resolved


class NoEndOfSequence(ResolveRule):
    """Targets without the id that ends them."""

    code = "SEQ14"
    severity = Severity.WARNING
    title = "targets without the end-of-sequence id"
    why = "Training looks well, and decoding goes on to the maximum length: the model never saw an end."
    bad = training(files=examples.files(", seqio.preprocessors.append_eos", ""), at="MIXTURE_OR_TASK_NAME")
    good = training()

    def check(self, run: Resolved) -> Iterator[Finding]:
        """Yields a finding for each train task of which no sampled target ends with it."""
        import numpy as np

        for role, sample in run.sampled():
            feature = sample.task.output_features.get("targets")
            if role.name != "train" or feature is None:
                continue
            eos = getattr(feature.vocabulary, "eos_id", None)
            # What was cut at its length may have lost the id there.
            longest = math.inf if sample.whole else (role.dataset.task_feature_lengths or {}).get("targets", math.inf)
            targets = [t for t in sample.values("targets") if np.ndim(t) == 1 and len(t) < longest]
            if eos is not None and targets and not any(len(t) and t[-1] == eos for t in targets):
                yield self.finding(
                    f"no sampled target of {sample.task.name} ends with the end-of-sequence id {eos}, so decoding "
                    "never learns to stop",
                    role.key(run.config, "mixture_or_task_name"),
                    "append seqio.preprocessors.append_eos and declare the feature with add_eos=True",
                )
