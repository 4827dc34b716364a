"""What a JUnit file says about a whole session: which versions ran on which slice."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator

import pytest
from _pytest.junitxml import xml_key  # what record_testsuite_property writes to; a fixture reaches no stage of a config

from t5x_harness import __version__

from .session import SESSION, HarnessSession

_LIBRARIES = ("jax", "flax", "seqio")


def record_versions(config: pytest.Config) -> None:
    """Adds properties to the test suite of ``--junitxml``, if that is asked for and runs were made."""
    xml = config.stash.get(xml_key, None)
    session = config.stash[SESSION]
    if xml is not None and session.results:
        for name, value in _versions(session):
            xml.add_global_property(name, value)


def _versions(session: HarnessSession) -> Iterator[tuple[str, str]]:
    yield "t5x.harness", __version__
    yield "t5x.runtime", f"{session.runtime.kind} T5X {session.runtime.version}"
    yield "t5x.slice", ", ".join(dict.fromkeys(spec.slice for spec in session.results))
    for library in _LIBRARIES:
        try:
            yield f"t5x.{library}", importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            continue
