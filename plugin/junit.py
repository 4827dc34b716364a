"""What a JUnit file says of a whole session: which versions ran on which slice."""

from __future__ import annotations

import pytest

from ._pytest_internals import junit_file
from .session import SESSION


def record_versions(config: pytest.Config) -> None:
    """Adds properties to the test suite of ``--junitxml``, if that is asked for and runs were made."""
    xml = junit_file(config)
    session = config.stash[SESSION]
    if xml is not None and session.begun is not None and session.begun.results.by_run:
        from t5x_harness.report.properties import version_properties

        for name, value in version_properties(session.runtime, (spec.slice for spec in session.begun.results.by_run)):
            xml.add_global_property(name, value)
