"""What the losses and metrics that a run wrote come to, here or in a job."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from t5x_harness.spec import Finding, Measure, Severity, Stage

Scalars = Mapping[str, Mapping[int, float]]
"""By TensorBoard folder and tag, then step."""


def loss_in_words(scalars: Scalars) -> str:
    """Returns the first and the last loss of training, or an empty text if it wrote none."""
    losses = scalars.get("train/loss", {})
    if not losses:
        return ""
    return f"{losses[min(losses)]:.4g} at step {min(losses)}, {losses[max(losses)]:.4g} at {max(losses)}"


def loss_measures(scalars: Scalars) -> Iterator[Measure]:
    """Yields the first and the last value of each loss."""
    for tag, losses in _losses(scalars):
        for step in sorted({min(losses), max(losses)}):
            yield Measure("loss", losses[step], of=tag.removesuffix("/loss"), step=step)


def infinite_losses(stage: Stage, scalars: Scalars) -> Iterator[Finding]:
    """Yields one finding that names each NaN or infinite loss at its first step, if there is any."""
    bad = []
    for tag, losses in _losses(scalars):
        step = next((step for step in sorted(losses) if not math.isfinite(losses[step])), None)
        if step is not None:
            bad.append(f"{tag} is {losses[step]} at step {step}")
    if bad:
        fix = "lower the learning rate, or look for a division by zero in the model"
        yield Finding("RUN04", Severity.ERROR, stage, ", ".join(bad), fix=fix)


def undefined_metrics(stage: Stage, metrics: Iterable[Measure]) -> Iterator[Finding]:
    """Yields one warning that names each NaN or infinite metric, if there is any.

    It is not an error: a metric such as a correlation is not defined for the few predictions of a small run, which may
    all be alike.
    """
    bad = [f"{each.name} of {each.of} is {each.value}" for each in metrics if not math.isfinite(each.value)]
    if bad:
        fix = "let the metric return a number for predictions that are all alike, or look for a division by zero in it"
        yield Finding("RUN04", Severity.WARNING, stage, ", ".join(bad), fix=fix)


def why_no_number(metrics: Iterable[Measure]) -> str:
    """Returns why metrics show nothing: not one is a finite number. Empty if one is."""
    return "" if any(math.isfinite(each.value) for each in metrics) else "it gave no finite number"


def _losses(scalars: Scalars) -> Iterator[tuple[str, Mapping[int, float]]]:
    return ((tag, losses) for tag, losses in scalars.items() if tag.endswith("/loss") and losses)
