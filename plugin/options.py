"""What pytest's options and ini values set."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pytest

from t5x_harness.promotion.resources import ResourcesError
from t5x_harness.promotion.session import EmulationError
from t5x_harness.settings.configuration import Configuration
from t5x_harness.settings.forms import SettingsError
from t5x_harness.settings.layers import merged
from t5x_harness.settings.options import JOBS, RUNS, JobSettings
from t5x_harness.settings.project import load_project
from t5x_harness.settings.pytest_options import OLD_NAMES, layers_of, pytest_name
from t5x_harness.vertex.target import VertexTargetError


def configuration_of(config: pytest.Config) -> Configuration:
    """Returns what is set for the session's runs.

    Raises:
      SettingsError: a value is none of those that there are, or pyproject.toml has a mistake in it.
    """
    here, root = config.invocation_params.dir, config.rootpath
    layers = layers_of(RUNS, config.getoption, config.getini, os.environ, here, root)
    return Configuration(layers, load_project(root), here, root, pytest_name)


def job_settings(config: pytest.Config) -> dict[str, Any]:
    """Returns what command line, environment and ini file set for jobs, by field.

    Raises:
      SettingsError: a value is none of those that there are.
    """
    here = config.invocation_params.dir
    layers = layers_of(JOBS, config.getoption, config.getini, os.environ, here, config.rootpath)
    return vars(JobSettings(**merged(JOBS, layers)))


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
