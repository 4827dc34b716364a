"""Options and ini values for promoted tests, and the values they are read into."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pytest

from t5x_harness.promotion.resources import ResourcesError, TpuResources
from t5x_harness.promotion.settings import DEFAULT_PARALLEL, PromotionSettings, target_of
from t5x_harness.settings.options import JOBS, option
from t5x_harness.vertex.chip_hours import DEFAULT_MAX_CHIP_HOURS
from t5x_harness.vertex.emulated import is_led_to_private_google
from t5x_harness.vertex.target import VertexTarget, VertexTargetError

from .options import add_table, values_of

__all__ = ["add_options", "read_settings", "read_target"]

_TARGET = [row for row in JOBS if row.key.startswith("vertex.") and row.pytest]


def add_options(parser: pytest.Parser) -> None:
    """Declares everything that is read here."""
    add_table(parser, parser.getgroup("t5x-harness-tpu", "tests promoted to TPU jobs on Vertex AI (-m tpu)"), JOBS)


def read_settings(config: pytest.Config, table: Mapping[str, Any]) -> PromotionSettings:
    """How promoted tests run.

    Args:
      config: pytest's.
      table: resources of the project's file.

    Raises:
      pytest.UsageError: a value is none of those that there are.
    """
    given, vertex = values_of(config, JOBS), option("vertex")
    from_line, services = config.getoption("t5x_vertex"), vertex.choices or ()
    service = from_line or os.environ.get(vertex.variable) or given["vertex"]
    if service and service not in services:
        raise pytest.UsageError(f"{vertex.variable} must be {' or '.join(services)}, not {service!r}")
    here = is_led_to_private_google(os.environ)
    return PromotionSettings(
        service=service or ("emulated" if here else "real"),
        parallel=given["parallel"] or DEFAULT_PARALLEL,
        max_chip_hours=given["max_chip_hours"] or DEFAULT_MAX_CHIP_HOURS,
        dry_run=bool(given["dry_run"]),
        reuse=tuple(given["reuse"] or ()),
        defaults={**table, **_resources(config.getini("t5x_tpu"))},
    )


def read_target(config: pytest.Config, settings: PromotionSettings, project: Mapping[str, str]) -> VertexTarget:
    """Where jobs go.

    Args:
      config: pytest's.
      settings: of :func:`read_settings`.
      project: the target's values in the project's file.

    Raises:
      pytest.UsageError: values are missing, all of which the message names; or one is wrong.
    """
    given = values_of(config, _TARGET)
    try:
        return target_of(settings, given, os.environ, project, lambda name: option(name).pytest[0])
    except VertexTargetError as error:
        raise pytest.UsageError(str(error)) from None


def _resources(lines: list[str]) -> Mapping[str, Any]:
    """``accelerator_count = 8`` and so on; whole numbers and booleans are read as such."""
    values: dict[str, Any] = {}
    for line in lines:
        name, equals, text = (part.strip() for part in line.partition("="))
        if not equals:
            raise pytest.UsageError(f"t5x_tpu: {line!r} is no NAME = VALUE, such as accelerator_type = TPU_V3")
        words = {"true": True, "false": False}
        values[name] = int(text) if text.isascii() and text.isdigit() else words.get(text.lower(), text)
    try:
        TpuResources.of(values)
    except ResourcesError as error:
        raise pytest.UsageError(f"t5x_tpu: {error}") from None
    return values
