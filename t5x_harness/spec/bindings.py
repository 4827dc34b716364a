"""What the parameters and macros of a config are bound to, and which statements bound them."""

from __future__ import annotations

import dataclasses

from t5x_harness.spec.findings import Location
from t5x_harness.system.decode import JsonValue


@dataclasses.dataclass(frozen=True)
class Assignment(JsonValue):
    """One gin statement that gives a value: the value as gin text, and the statement's location."""

    value: str
    location: Location


@dataclasses.dataclass(frozen=True)
class BoundValue(JsonValue):
    """What a parameter or a macro is bound to once the whole config was read, and by which statements.

    Attributes:
      name: as the winning statement writes it, ``train/utils.DatasetConfig.batch_size`` or ``BATCH_SIZE``.
      configurable: the full name of the parameter's configurable, such as ``t5x.utils.DatasetConfig``; None for a
        macro.
      assignment: the statement that won.
      overridden: the statements that lost against later ones, in the order in which they were read.
    """

    name: str
    configurable: str | None
    assignment: Assignment
    overridden: tuple[Assignment, ...] = ()
