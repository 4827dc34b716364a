"""What a config binds, and what a stage establishes and changes, for programs."""

from __future__ import annotations

import dataclasses
import enum

from t5x_harness.spec.findings import Location
from t5x_harness.system.decode import JsonValue


class Reason(enum.StrEnum):
    """What a change is for.

    ``SANDBOX``: a path that was moved into the run's folder.
    ``GIVEN``: a folder that the config leaves to the command line of the job.
    ``STEPS``: the steps that a promoted test asks for.
    ``REPEATABLE``: a seed where T5X would take the clock.
    """

    SHRINK = "shrink"
    STANDIN = "standin"
    SANDBOX = "sandbox"
    GIVEN = "given"
    STEPS = "steps"
    REPEATABLE = "repeatable"


class Changed(enum.StrEnum):
    """What was changed: a binding of the config, or what no binding says."""

    BINDING = "binding"
    MESH = "mesh"
    DATA = "data"
    VOCABULARY = "vocabulary"


@dataclasses.dataclass(frozen=True)
class Change(JsonValue):
    """A value that the harness changed to run a config here: by shrinking it or by a stand-in.

    Attributes:
      binding: the full gin name, such as ``network.T5Config.emb_dim``; a name in words for anything else.
      before: the config's own value, as gin text.
      after: the value that ran, as gin text.
      why: what the change is for.
      what: what was changed.
    """

    binding: str
    before: str
    after: str
    why: Reason
    what: Changed = Changed.BINDING


@dataclasses.dataclass(frozen=True)
class Measure(JsonValue):
    """A number that a stage established; the stage's facts say the same for people.

    Attributes:
      name: what was measured, the same in every version: ``parameters``, ``learning_rate``, ``loss``; see docs/plan.md.
      value: the number; not finite if the run's own number is not.
      unit: what it counts: ``bytes``, ``steps``, ``examples``, ``tokens``, ``devices``; empty for a number without one.
      of: the dataset, task, module of the model or part of the state that was measured; empty for the run.
      step: the train step that it belongs to, or None.
    """

    name: str
    value: float
    unit: str = ""
    of: str = ""
    step: int | None = None


@dataclasses.dataclass(frozen=True)
class FactTable(JsonValue):
    """A fact that is a table, for programs; its text is among the stage's facts under the same name.

    Attributes:
      name: of the fact.
      columns: the heads; empty for a table without them.
      rows: the cells, text or numbers; a short row lacks its last cells.
    """

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[int | float | str, ...], ...]


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
