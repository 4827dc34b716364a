"""What comes back from a shipped test: the reports of its phases, as pytest in the job wrote them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Self

from t5x_harness.vertex.ran_on import RanOn

_VERSION = 2


class ShippedOutcomeError(ValueError):
    """What a job left is not an outcome of a test; the message says what it is."""


class ShipFailed(Exception):
    """A job gave no outcome of its test, or one that does not count; the message says why."""


@dataclasses.dataclass(frozen=True)
class ShippedOutcome:
    """The outcome of one test in a job.

    Attributes:
      nodeid: the test's.
      status: pytest's exit status.
      reports: those of setup, call and teardown, as pytest makes them serializable.
      problem: why there is none of them, such as an import error while collecting; empty if there are.
      devices: what JAX saw there, such as ``8 x TPU v3``, or why it saw none; empty if the test imported no JAX.
      platform: of these devices: ``tpu``, ``cpu``, …; empty if there are none.
      platform_set: whether JAX's platforms were set, as by JAX_PLATFORMS. Else it takes the best it finds.
      versions: of Python, pytest, the harness and JAX.
      warnings: that the test caused, as :mod:`t5x_harness.promotion.shipped_reports` has them.
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
        """What the test's JAX ran on."""
        return RanOn(self.devices, self.platform, self.platform_set, unknown="not looked at: the test imported no JAX")

    @property
    def failed(self) -> bool:
        """Whether one of its phases failed, or one of its subtests."""
        return any(report["outcome"] == "failed" for report in self.reports)

    def about_versions(self) -> str:
        """Returns the versions there, in words."""
        return ", ".join(f"{name} {version}" for name, version in self.versions.items())

    def to_text(self) -> str:
        """Returns JSON; what JSON has no form for is written as its text."""
        return json.dumps({"version": _VERSION, **dataclasses.asdict(self)}, default=str)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Returns the inverse of :meth:`to_text`.

        Raises:
          ShippedOutcomeError: the text is none.
        """
        try:
            value = json.loads(text)
            version = value.pop("version")
            if version != _VERSION:
                raise ShippedOutcomeError(
                    f"the report of the job has version {version}, and {_VERSION} is known here: the image's "
                    "t5x-harness and the one here differ"
                )
            return cls(**{**value, **{name: tuple(value[name]) for name in ("reports", "warnings")}})
        except (AttributeError, KeyError, TypeError, json.JSONDecodeError) as error:
            raise ShippedOutcomeError(f"the report of the job cannot be read: {error}") from None
