"""What comes back from a shipped test: the reports of its phases, as pytest in the job wrote them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Self

__all__ = ["ShippedOutcome", "ShippedOutcomeError"]

_VERSION = 1


class ShippedOutcomeError(ValueError):
    """What a job left is no outcome of a test; the message says what it is."""


@dataclasses.dataclass(frozen=True)
class ShippedOutcome:
    """The outcome of one test in a job.

    Attributes:
      nodeid: the test's.
      status: pytest's exit status.
      reports: those of setup, call and teardown, as pytest makes them serializable.
      problem: why there is none of them, such as an import error while collecting; empty if there are.
      devices: what JAX saw there, such as ``8 x TPU v3``; empty if the test imported no JAX.
      versions: of Python, pytest, the harness and JAX.
    """

    nodeid: str
    status: int
    reports: tuple[Mapping[str, Any], ...] = ()
    problem: str = ""
    devices: str = ""
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def to_text(self) -> str:
        """As JSON; what JSON has no form for is written as its text."""
        return json.dumps({"version": _VERSION, **dataclasses.asdict(self)}, default=str)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The inverse of :meth:`to_text`.

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
            return cls(**{**value, "reports": tuple(value["reports"])})
        except (AttributeError, KeyError, TypeError, json.JSONDecodeError) as error:
            raise ShippedOutcomeError(f"the report of the job cannot be read: {error}") from None
