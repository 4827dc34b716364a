"""What a JUnit file says: of a whole session which versions ran on which slice, of a stage its numbers and facts."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator

import pytest

from t5x_harness import __version__
from t5x_harness.spec import Measure, StageResult

from ._pytest_internals import junit_file
from .session import SESSION, HarnessSession

_LIBRARIES = ("jax", "flax", "seqio")


def record_versions(config: pytest.Config) -> None:
    """Adds properties to the test suite of ``--junitxml``, if that is asked for and runs were made."""
    xml = junit_file(config)
    session = config.stash[SESSION]
    if xml is not None and session.begun is not None and session.begun.results.by_run:
        for name, value in _versions(session):
            xml.add_global_property(name, value)


def _versions(session: HarnessSession) -> Iterator[tuple[str, str]]:
    yield "t5x.harness", __version__
    yield "t5x.runtime", f"{session.runtime.kind} T5X {session.runtime.version}"
    yield "t5x.slice", ", ".join(dict.fromkeys(spec.slice for spec in session.runs.results.by_run))
    for library in _LIBRARIES:
        try:
            yield f"t5x.{library}", importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            continue


def stage_properties(result: StageResult) -> list[tuple[str, str]]:
    """The numbers of a stage, ``t5x.loss.train.step_4``, and its facts of one line; names have no blanks."""
    found = {
        ".".join(["t5x", measure.name, *filter(None, [measure.of]), *_step(measure)]): f"{measure.value:.10g}"
        for measure in result.measures
    }
    facts = {f"t5x.{name}": value for name, value in result.facts if "\n" not in value}
    tables = {f"t5x.{table.name}" for table in result.tables}
    found = {name: value for name, value in facts.items() if name not in tables} | found
    return [("_".join(name.split()), value) for name, value in found.items()]


def _step(measure: Measure) -> list[str]:
    return [] if measure.step is None else [f"step_{measure.step}"]
