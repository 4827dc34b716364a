"""The findings, facts, changes and outcome of a run and of each of its stages."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any, Self

from t5x_harness.spec.choices import Stage
from t5x_harness.spec.run import RunSpec
from t5x_harness.system.decode import JsonValue
from t5x_harness.system.texts import shorten


class Severity(enum.StrEnum):
    """How much a finding matters: an error fails its stage, a warning and a note do not."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclasses.dataclass(frozen=True)
class Location(JsonValue):
    """A line of a file, with the include statements that led to it (outermost first)."""

    file: str
    line: int
    included_from: tuple[Location, ...] = ()

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclasses.dataclass(frozen=True)
class Edit(JsonValue):
    """Whole lines of a file, and their replacement.

    Attributes:
      file: the file's name, as shown in locations: relative to the run's working directory, or absolute.
      first: the first line to replace, counted from 1.
      last: the last line to replace; ``first - 1`` to replace none and insert ``text`` before line ``first``.
      text: the replacement, in which each line ends with a line feed, even if the file's own line ends differ; empty to
        remove the lines.
    """

    file: str
    first: int
    last: int
    text: str


@dataclasses.dataclass(frozen=True)
class Finding(JsonValue):
    """One thing to tell the user: what is wrong, where, and the smallest change that fixes it.

    A message or fix longer than a page is shortened; see :func:`~t5x_harness.system.texts.shorten`.

    Attributes:
      code: the stable id from the failure catalog, such as ``GIN01``.
      severity: see :class:`Severity`.
      stage: the stage that found it.
      message: a description of the failure, with the values that disagree.
      location: the binding, import or include at fault; None if no line is, which the message should say.
      fix: the smallest fix, as an instruction.
      binding: the full gin name of the binding at fault, such as ``train/utils.DatasetConfig.batch_size``.
      edits: the same fix in a form that programs can apply, all of it or none; empty if a person has to decide.
    """

    code: str
    severity: Severity
    stage: Stage
    message: str
    location: Location | None = None
    fix: str | None = None
    binding: str | None = None
    edits: tuple[Edit, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", shorten(self.message))
        if self.fix is not None:
            object.__setattr__(self, "fix", shorten(self.fix))


class Reason(enum.StrEnum):
    """The reason for a change.

    ``SANDBOX``: a path that was moved into the run's folder.
    ``GIVEN``: a folder that the config leaves to the command line of the job.
    ``STEPS``: the steps that a promoted test requests.
    ``REPEATABLE``: a seed that T5X would take from the clock.
    """

    SHRINK = "shrink"
    STANDIN = "standin"
    SANDBOX = "sandbox"
    GIVEN = "given"
    STEPS = "steps"
    REPEATABLE = "repeatable"


class Changed(enum.StrEnum):
    """What was changed: a binding of the config, or something that no binding sets."""

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
      why: the reason for the change.
      what: the kind of thing that was changed.
    """

    binding: str
    before: str
    after: str
    why: Reason
    what: Changed = Changed.BINDING


@dataclasses.dataclass(frozen=True)
class Measure(JsonValue):
    """A number that a stage established; the stage's facts give it in a form for people.

    Attributes:
      name: the name of the quantity, the same in every version: ``parameters``, ``learning_rate``, ``loss``; see
        docs/plan.md.
      value: the number; not finite if the run's own number is not.
      unit: its unit: ``bytes``, ``steps``, ``examples``, ``tokens``, ``devices``; empty for a number without one.
      of: the dataset, task, module of the model or part of the state that was measured; empty for the run.
      step: the train step to which it belongs, or None.
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
      name: the name of the fact.
      columns: the headings; empty for a table without them.
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
    """The final value of a parameter or macro in a config, and the statements that bind it.

    Attributes:
      name: the name as the winning statement writes it: ``train/utils.DatasetConfig.batch_size`` or ``BATCH_SIZE``.
      configurable: the full name of the parameter's configurable, such as ``t5x.utils.DatasetConfig``; None for a
        macro.
      assignment: the statement that won.
      overridden: the statements that later ones replaced, in the order in which they were read.
    """

    name: str
    configurable: str | None
    assignment: Assignment
    overridden: tuple[Assignment, ...] = ()


class Outcome(enum.StrEnum):
    """How a stage ended. ``NOT_RUN`` is a stage that was skipped after a failure, or could not be judged."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"


@dataclasses.dataclass(frozen=True)
class StageResult(JsonValue):
    """The findings and the work of one stage.

    Attributes:
      facts: the facts that the stage established, in display order: ``("mesh", "data 8 x model 1")``.
      not_checked: the checks that it could not make, in words; never silently empty.
      exercised: the number of units of real work that were done: statements read by lint, examples by resolve, arrays
        planned, programs compiled, steps trained, examples evaluated, lines inferred; 0 means nothing was proved.
      seconds: the wall time.
      parts: what these seconds went into, by the names of :mod:`t5x_harness.timings.kinds`; empty unless the run's
        settings ask for it.
      counts: what it did, in numbers that do not depend on the machine's speed, by the names of
        :mod:`t5x_harness.timings.stage`; empty without ``parts``.
      log_tail: the last lines of the run's log, if it failed.
      silenced: findings that the user ignores, by code or by a comment; they do not fail the stage.
      measures: the numbers among the facts, for programs, in the order in which they were established.
      tables: the facts that are tables, for programs, in the same order.
    """

    stage: Stage
    outcome: Outcome
    findings: tuple[Finding, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    not_checked: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    exercised: int = 0
    seconds: float = 0.0
    parts: Mapping[str, float] = dataclasses.field(default_factory=dict)
    counts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    log_tail: str = ""
    silenced: tuple[Finding, ...] = ()
    measures: tuple[Measure, ...] = ()
    tables: tuple[FactTable, ...] = ()

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that fail the stage."""
        return tuple(f for f in self.findings if f.severity is Severity.ERROR)

    @classmethod
    def interrupted(cls, stage: Stage) -> Self:
        """Returns the result of a stage that was running when its run was interrupted."""
        return cls(stage, Outcome.NOT_RUN, not_checked=(f"{stage}: interrupted",))


@dataclasses.dataclass(frozen=True)
class Imports(JsonValue):
    """What is known of the imports of T5X and its stack, which the runs of one call share.

    Attributes:
      seconds: how long runs have waited for them.
      packages: the seconds that each package took; empty unless they are measured.
      stay: whether their process stays for further calls.
    """

    seconds: float = 0.0
    packages: Mapping[str, float] = dataclasses.field(default_factory=dict)
    stay: bool = False


NOTHING_IMPORTED = Imports()


@dataclasses.dataclass(frozen=True)
class Checkpoint(JsonValue):
    """A checkpoint folder that a run wrote."""

    step: int
    path: str
    num_bytes: int


@dataclasses.dataclass(frozen=True)
class AuxiliaryRun(JsonValue):
    """A run for one checkpoint of a train job.

    Attributes:
      name: the name of the jobs to which it belongs, which is the name of their last gin file.
      step: the step of the checkpoint.
      mixture: the mixture on which it evaluates or fine-tunes.
      result: its outcome; for an evaluation, without the earlier contents of the train job's folder.
    """

    name: str
    step: int
    mixture: str
    result: RunResult


@dataclasses.dataclass(frozen=True)
class RunResult(JsonValue):
    """The outcome of a run, the same from every backend.

    Attributes:
      stages: the results of its stages, in the order in which they ran.
      steps: the last train step that was reached; 0 if nothing was trained.
      metrics: scalars by TensorBoard folder and tag, then step: ``metrics["train/loss"][4]``,
        ``metrics["inference_eval/my_task/eval/bleu"][4]``.
      checkpoints: the checkpoints that were written, ordered by step.
      predictions: the JSON lines that evaluation and inference wrote, as dicts, in file order.
      operative_config: the text of the config.gin that the run wrote; empty if it wrote none.
      log: the path of the run's log file.
      model_dir: the folder into which the run wrote.
      timings: seconds by stage.
      standins: the things that were generated because they are not available here, in words.
      bindings: every parameter and macro that the config binds, as in its text before any change, in the order
        in which they were first bound. Empty if the config was not read.
      seconds: the time waited for all stages, including imports; ``timings`` is their own work.
      auxiliary: the runs of its auxiliary jobs; the metrics of those that evaluate are also in ``metrics``.
    """

    spec: RunSpec
    stages: tuple[StageResult, ...]
    steps: int = 0
    metrics: Mapping[str, Mapping[int, float]] = dataclasses.field(default_factory=dict)
    checkpoints: tuple[Checkpoint, ...] = ()
    predictions: tuple[Mapping[str, Any], ...] = ()
    operative_config: str = ""
    log: str = ""
    model_dir: str = ""
    runtime: str = ""
    standins: tuple[str, ...] = ()
    bindings: tuple[BoundValue, ...] = ()
    seconds: float = 0.0
    auxiliary: tuple[AuxiliaryRun, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every stage passed, including those of the auxiliary jobs."""
        return all(s.outcome is Outcome.PASSED for s in self.stages) and all(r.result.passed for r in self.auxiliary)

    @property
    def timings(self) -> Mapping[str, float]:
        """Seconds by stage."""
        return {s.stage.value: s.seconds for s in self.stages}

    @property
    def changes(self) -> tuple[Change, ...]:
        """Everything that the harness changed in the config, in all stages."""
        return tuple(c for s in self.stages for c in s.changes)

    def stage(self, stage: Stage | str) -> StageResult:
        """Returns the result of one stage.

        Raises:
          KeyError: the stage was not part of this run.
        """
        for result in self.stages:
            if result.stage == stage:
                return result
        raise KeyError(f"no stage {stage!s} in this run; it has {', '.join(s.stage for s in self.stages)}")
