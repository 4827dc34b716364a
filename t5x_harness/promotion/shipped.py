"""The outcome of a shipped test: the reports of its phases, as pytest in the job wrote them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Self

from t5x_harness.vertex.ran_on import RanOn

_VERSION = 2


class ShippedOutcomeError(ValueError):
    """A job's output is not the outcome of a test; the message says why."""


class ShipFailed(Exception):
    """A job has no outcome of its test, or one that does not count; the message says why."""


@dataclasses.dataclass(frozen=True)
class ShippedOutcome:
    """The outcome of one test in a job.

    Attributes:
      nodeid: the node id of the test.
      status: pytest's exit status.
      reports: reports of setup, call and teardown, as pytest serializes them.
      problem: why there are no reports, such as an import error; empty if there are.
      devices: the devices of JAX, such as ``8 x TPU v3``, or why it had none; empty if the test did not import JAX.
      platform: the platform of these devices: ``tpu``, ``cpu``, …; empty if there are none.
      platform_set: whether JAX's platform was set, as by JAX_PLATFORMS. Otherwise, JAX chooses the best it finds.
      versions: versions of Python, pytest, the harness and JAX.
      warnings: warnings of the test, as :mod:`t5x_harness.promotion.shipped_reports` serializes them.
    """

    nodeid: str
    status: int
    reports: tuple[Mapping[str, Any], ...] = ()
    problem: str = ""
    devices: str = ""
    platform: str = ""
    platform_set: bool = False
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    warnings: tuple[Mapping[str, Any], ...] = ()

    @property
    def ran_on(self) -> RanOn:
        """The devices that the test's JAX ran on."""
        return RanOn(self.devices, self.platform, self.platform_set, unknown="not looked at: the test imported no JAX")

    @property
    def failed(self) -> bool:
        """Whether one of its phases failed, or one of its subtests."""
        return any(report["outcome"] == "failed" for report in self.reports)

    def about_versions(self) -> str:
        """Lists the versions in words."""
        return ", ".join(f"{name} {version}" for name, version in self.versions.items())

    def to_text(self) -> str:
        """Serializes the outcome as JSON; values that JSON cannot represent become text."""
        return json.dumps({"version": _VERSION, **dataclasses.asdict(self)}, default=str)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parses the text of :meth:`to_text`.

        Raises:
          ShippedOutcomeError: the text is not an outcome.
        """
        try:
            value = json.loads(text)
            version = value.pop("version")
            if version != _VERSION:
                raise ShippedOutcomeError(
                    f"the report of the job has version {version}, and this t5x-harness reads version {_VERSION}: "
                    "it differs from the image's"
                )
            return cls(**{**value, **{name: tuple(value[name]) for name in ("reports", "warnings")}})
        except (AttributeError, KeyError, TypeError, json.JSONDecodeError) as error:
            raise ShippedOutcomeError(f"the report of the job cannot be read: {error}") from None
