"""The mixtures of a run and the rates of their tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import seqio

from t5x_harness.resolve.datasets import provider_of
from t5x_harness.resolve.resolved import Resolved
from t5x_harness.spec import Mode
from t5x_harness.upstream.seqio import weights_of


def mixtures_of(run: Resolved) -> Iterator[tuple[seqio.Mixture, str]]:
    """Yields every mixture whose examples the run mixes, with the split.

    Only training mixes: evaluation and inference read each task alone.
    """
    found = {}
    for role in run.roles:
        provider = provider_of(role)
        if isinstance(provider, seqio.Mixture) and run.config.mode is Mode.TRAIN and not run.has_evaluator(role):
            found[provider.name, role.dataset.split] = provider
    for (_, split), mixture in found.items():
        yield mixture, split


def tasks_of_open_rate(run: Resolved, mixture: seqio.Mixture) -> list[str]:
    """Returns the tasks whose rate is a function, usually of their size, while their size here is generated."""
    rates = weights_of(mixture)
    return [t.name for t in mixture.tasks if callable(rates.get(t.name)) and run.standins.has_generated_size(t)]


def rates_of(mixture: seqio.Mixture, split: str) -> Mapping[str, float | Exception]:
    """Returns the rate of each task that has the split, by name, or the exception that computing it raised."""
    rates: dict[str, float | Exception] = {}
    for task in mixture.tasks:
        if split in task.splits:
            try:
                rates[task.name] = float(mixture.get_rate(task))
            except Exception as error:  # a rate may be any function of the user's
                rates[task.name] = error
    return rates
