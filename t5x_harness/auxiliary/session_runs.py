"""Auxiliary jobs as runs of a test: shrunk as the train job was, and ended when they have been started."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from t5x_harness.auxiliary.backend import Look
from t5x_harness.auxiliary.jobs import REPLACED, AuxiliaryJob, JobTemplate
from t5x_harness.spec import Changed, Reason, RunResult, RunSpec


class SessionRuns:
    """A backend whose jobs are runs of a test.

    Args:
      template: of the jobs.
      trained: the train job, as it has run here.
      make: makes a run, and fails the test if that fails.

    Attributes:
      results: of each job, by the step of its checkpoint and its mixture.
      metrics: of the train job and of what evaluated its checkpoints, by name and step.
    """

    def __init__(self, template: JobTemplate, trained: RunResult, make: Callable[[RunSpec], RunResult]) -> None:
        self._template = template
        self._trained = trained
        self._make = make
        self.results: dict[tuple[int, str], RunResult] = {}
        self.metrics: dict[str, dict[int, float]] = {}
        self._add(trained.metrics)

    def start(self, name: str, job: AuxiliaryJob) -> str:
        """Runs it; what an evaluation writes for TensorBoard goes to the train job's."""
        spec = dataclasses.replace(job.spec, bindings=(*self._sizes(), *job.spec.bindings))
        result = self._make(spec)
        self.results[job.step, job.mixture] = result
        if self._template.shares_folder:
            self._add(result.metrics)
            for folder in ("inference_eval", "training_eval"):
                written = Path(result.model_dir, folder)
                if written.is_dir():
                    shutil.copytree(written, Path(job.folder, folder), dirs_exist_ok=True)
        return name

    def find(self, name: str) -> str | None:
        """Finds none: a test starts each once."""
        del name
        return None

    def look(self, where: str) -> Look:
        """Says that it has succeeded, as the test has failed otherwise."""
        del where
        return Look(succeeded=True)

    def _sizes(self) -> list[str]:
        """Returns the sizes that the train job was given here, as far as the jobs' config has them."""
        known = {str(statement) for statement in self._template.program.final.values()}
        return [
            f"{change.binding} = {change.after}"
            for change in self._trained.changes
            if change.why is Reason.SHRINK and change.what is Changed.BINDING
            if change.binding in known and change.binding not in REPLACED
        ]

    def _add(self, metrics: Mapping[str, Mapping[int, float]]) -> None:
        for name, values in metrics.items():
            self.metrics.setdefault(name, {}).update(values)
