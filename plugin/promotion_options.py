"""Options and ini values for promoted tests, and the values they are read into."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pytest

from t5x_harness.promotion.resources import ResourcesError, TpuResources
from t5x_harness.promotion.settings import DEFAULT_PARALLEL, SERVICES, PromotionSettings, target_of
from t5x_harness.settings.numbers import positive_number
from t5x_harness.variables import VERTEX_PREFIX
from t5x_harness.vertex.chip_hours import DEFAULT_MAX_CHIP_HOURS
from t5x_harness.vertex.emulated import is_led_to_private_google
from t5x_harness.vertex.target import VertexTarget, VertexTargetError

__all__ = ["add_options", "read_settings", "read_target"]

_TARGET = {
    "project": "Id of the Google Cloud project that pays for promoted tests",
    "location": "Region that their jobs run in, such as us-central1",
    "bucket": "Bucket in that region for staged files and results, by its name alone",
    "image": "URI of the container image that runs T5X's main.py",
}
_SERVICE_VARIABLE = VERTEX_PREFIX.removesuffix("_")


def add_options(parser: pytest.Parser) -> None:
    """Declares everything that is read here."""
    group = parser.getgroup("t5x-harness-tpu", "tests promoted to TPU jobs on Vertex AI (-m tpu)")
    group.addoption(
        "--vertex",
        choices=SERVICES,
        help="Where promoted tests run: on the real Vertex AI, or on this machine against an emulated one "
        f"(default: {_SERVICE_VARIABLE}, the ini value t5x_vertex, else emulated in a shell of t5x-harness serve, "
        "and real elsewhere)",
    )
    for name, meaning in _TARGET.items():
        group.addoption(
            f"--vertex-{name}", metavar=name.upper(), help=f"{meaning} (default: {VERTEX_PREFIX}{name.upper()})"
        )
    group.addoption(
        "--tpu-max-chip-hours",
        type=_positive_number,
        default=DEFAULT_MAX_CHIP_HOURS,
        metavar="N",
        help=f"The most chip-hours that one job may use up until its timeout (default: {DEFAULT_MAX_CHIP_HOURS:g})",
    )
    group.addoption(
        "--tpu-parallel",
        type=_positive_count,
        default=DEFAULT_PARALLEL,
        metavar="N",
        help=f"How many jobs may be there at once (default: {DEFAULT_PARALLEL})",
    )
    group.addoption(
        "--tpu-dry-run", action="store_true", help="Print the job of each promoted test, send none and skip the tests"
    )
    group.addoption(
        "--tpu-reuse",
        metavar="JOB",
        action="append",
        default=[],
        help="Take this job, by its name or number, for the test that it was sent for; may be repeated",
    )
    parser.addini("t5x_vertex", "Where promoted tests run: real or emulated (default: real)", "string", "")
    for name, meaning in _TARGET.items():
        parser.addini(f"t5x_vertex_{name}", meaning, "string", "")
    parser.addini("t5x_tpu", "Resources of promoted tests, such as accelerator_type = TPU_V3", "linelist", [])


def read_settings(config: pytest.Config, table: Mapping[str, Any]) -> PromotionSettings:
    """How promoted tests run.

    Args:
      config: pytest's.
      table: resources of the project's file.

    Raises:
      pytest.UsageError: a value is none of those that there are.
    """
    service = config.getoption("vertex") or os.environ.get(_SERVICE_VARIABLE) or config.getini("t5x_vertex")
    if service and service not in SERVICES:
        raise pytest.UsageError(f"{_SERVICE_VARIABLE} and t5x_vertex must be {' or '.join(SERVICES)}, not {service!r}")
    here = is_led_to_private_google(os.environ)
    return PromotionSettings(
        service=service or ("emulated" if here else "real"),
        parallel=config.getoption("tpu_parallel"),
        max_chip_hours=config.getoption("tpu_max_chip_hours"),
        dry_run=config.getoption("tpu_dry_run"),
        reuse=tuple(config.getoption("tpu_reuse")),
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
    given = {name: config.getoption(f"vertex_{name}") or config.getini(f"t5x_vertex_{name}") for name in _TARGET}
    try:
        return target_of(settings, given, os.environ, project, lambda name: f"--vertex-{name}")
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


def _positive_number(text: str) -> float:
    number = positive_number(text)
    if number is None:
        raise pytest.UsageError(f"--tpu-max-chip-hours must be a positive number, not {text!r}")
    return number


def _positive_count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise pytest.UsageError(f"--tpu-parallel must be a whole number above zero, not {text!r}")
    return int(text)
