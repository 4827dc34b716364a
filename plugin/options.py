"""What pytest was given by options and ini values, out of the table of all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from t5x_harness.promotion.resources import ResourcesError
from t5x_harness.promotion.session import EmulationError
from t5x_harness.settings.options import Option
from t5x_harness.settings.project import SettingsError
from t5x_harness.settings.pytest_options import OLD_NAMES, values_of
from t5x_harness.vertex.target import VertexTargetError


def values(config: pytest.Config, rows: Iterable[Option]) -> dict[str, Any]:
    """Returns what command line, environment and ini file say, by field; None or empty where none does.

    Raises:
      SettingsError: a value is none of those that there are.
    """
    return values_of(rows, config.getoption, config.getini, os.environ)


@contextlib.contextmanager
def usage_errors(before: str = "") -> Iterator[None]:
    """Has pytest show mistakes in settings as those of its own options, without a traceback; ``before`` says where."""
    try:
        yield
    except (SettingsError, ResourcesError, VertexTargetError, EmulationError) as error:
        raise pytest.UsageError(f"{before}{error}") from None


def warn_of_old_names(config: pytest.Config) -> None:
    """Warns of each old name on the command line, once for the session."""
    if not hasattr(config, "workerinput"):
        for old, new in getattr(config.option, OLD_NAMES, {}).items():
            warning = pytest.PytestDeprecationWarning(f"{old} is the old name of {new}, and will be removed: use {new}")
            config.issue_config_time_warning(warning, stacklevel=2)
