"""The values that every room of the harness speaks.

A :class:`RunSpec` says what to run, a :class:`Finding` is one thing that is wrong (or worth knowing) about it, a
:class:`StageResult` is what one stage made of it and a :class:`RunResult` is the whole. All are frozen, hold only
plain Python values and survive a trip through JSON (``to_json``, ``from_json``): stages run in other processes.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from t5x_harness.system.decode import JsonValue
from t5x_harness.system.shortening import shorten

if TYPE_CHECKING:
    from t5x_harness import Conversion

READ_SECONDS = 3
"""How long resolve reads each split of the data, by default."""

DEFAULT_SLICE = "v3-8"
"""The slice of runs that name none."""

STAGE_SECONDS = 600.0
"""The time limit of one stage, unless another is set."""


class RuntimeChoice(enum.StrEnum):
    """Which T5X runs; ``AUTO`` is the installed one if there is any, else the embedded one."""

    AUTO = "auto"
    INSTALLED = "installed"
    EMBEDDED = "embedded"


class GcsPaths(enum.StrEnum):
    """What ``gs://`` and ``/gcs`` are to a run; see :attr:`RunSpec.gcs`."""

    FOLDER = "folder"
    FUSE = "fuse"
    OFF = "off"


class StandInPolicy(enum.StrEnum):
    """For what stand-ins are made.

    ``OFF``: for nothing; what cannot be reached fails as it does in T5X.
    ``MISSING``: for what cannot be reached from here.
    ``ALL``: for everything in a bucket or on a hub, within reach or not: the run is the same on every machine.
    """

    OFF = "off"
    MISSING = "missing"
    ALL = "all"

    def replaces(self, path: str) -> bool:
        """Returns whether a stand-in takes the place of the file or folder at ``path``."""
        from t5x_harness.system.buckets import is_remote, is_unreachable

        return self is not StandInPolicy.OFF and (is_remote if self is StandInPolicy.ALL else is_unreachable)(path)


class Mode(enum.StrEnum):
    """Which T5X function a config binds: ``train.train``, ``eval.evaluate`` or ``infer.infer``."""

    TRAIN = "train"
    EVAL = "eval"
    INFER = "infer"


class Stage(enum.StrEnum):
    """One step of a run, in the order in which they run: cheapest first."""

    LINT = "lint"
    RESOLVE = "resolve"
    PLAN = "plan"
    AOT = "aot"
    TRAIN = "train"
    EVAL = "eval"
    INFER = "infer"


class AotMode(enum.StrEnum):
    """How the full-size programs are compiled by the TPU's compiler.

    ``LOWER``: not at all; only lowered for it.
    ``DEPTHS``: at two small numbers of layers, until their memory is assigned, and extrapolated to the config's.
    ``MEMORY``: with all layers, until their memory is assigned.
    ``FULL``: with all layers, to the machine's code.
    """

    LOWER = "lower"
    DEPTHS = "depths"
    MEMORY = "memory"
    FULL = "full"


class Severity(enum.StrEnum):
    """How much a finding matters: an error fails its stage, a warning and a note do not."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Outcome(enum.StrEnum):
    """How a stage ended. ``NOT_RUN`` is a stage that an earlier failure left out."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"


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
    """Whole lines of a file, and what to put in their place.

    Attributes:
      file: the file's name as locations show it: relative to the run's working directory, or absolute.
      first: the first line that goes, counted from 1.
      last: the last line that goes; ``first - 1`` where none goes and ``text`` is put in front of line ``first``.
      text: what comes in their place, each line ended by a line feed whatever the file itself ends lines with; empty to
        remove them.
    """

    file: str
    first: int
    last: int
    text: str


@dataclasses.dataclass(frozen=True)
class Finding(JsonValue):
    """One thing to tell the user: what is wrong, where, and the smallest change that fixes it.

    A message or fix longer than a page is shortened; see :func:`~t5x_harness.system.shortening.shorten`.

    Attributes:
      code: stable id from the failure catalogue, such as ``GIN01``.
      severity: see :class:`Severity`.
      stage: the stage that found it.
      message: what failed, with the values that disagree.
      location: the binding, import or include at fault; None where no line is (say so in the message).
      fix: the smallest fix, as an instruction.
      binding: the full gin name of the binding at fault, such as ``train/utils.DatasetConfig.batch_size``.
      edits: the same fix for a program to make, all of it or none; empty where a person has to decide.
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


@dataclasses.dataclass(frozen=True)
class Assignment(JsonValue):
    """One gin statement that gives a value: the value as gin text, and where the statement stands."""

    value: str
    location: Location


@dataclasses.dataclass(frozen=True)
class BoundValue(JsonValue):
    """What a parameter or a macro is bound to once all of a config was read, and how it came to that.

    Attributes:
      name: as the winning statement writes it, ``train/utils.DatasetConfig.batch_size`` or ``BATCH_SIZE``.
      configurable: the full name of what the parameter belongs to, such as ``t5x.utils.DatasetConfig``; None for a
        macro.
      assignment: the statement that won.
      overridden: the statements that lost against later ones, in the order in which they were read.
    """

    name: str
    configurable: str | None
    assignment: Assignment
    overridden: tuple[Assignment, ...] = ()


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
      binding: the full gin name, such as ``network.T5Config.emb_dim``; of what is not a binding, its name in words.
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
      value: the number; not finite where a run's own number is not.
      unit: what it counts: ``bytes``, ``steps``, ``examples``, ``tokens``, ``devices``; empty for a number without one.
      of: what it was measured of: a dataset, a task, a module of the model, a part of the state; empty for the run.
      step: the train step that it belongs to; None where it belongs to none.
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
class RunSpec(JsonValue):
    """What to run: gin files in order, bindings after them, and where.

    Attributes:
      gin_files: paths as the user gave them, parsed in this order.
      bindings: gin statements parsed after the files, without ``--gin.``: ``TRAIN_STEPS = 8``.
      search_paths: folders where gin files and their includes are looked up, first match wins.
      mode: what the config binds; None to infer it from the config.
      slice: the TPU slice whose mesh is emulated, by name (``v3-8``) or topology (``v3:4x4``).
      runtime: which T5X runs.
      python_path: folders put in front of ``sys.path`` for the config's own modules.
      tfds_data_dir: as T5X's ``--tfds_data_dir``.
      full_size: run the config at the sizes it names and on the slice's whole mesh, without shrinking.
      full_mesh: execute on the slice's whole mesh; else its data axis is cut to a few positions.
      tpu_numerics: round the operands of float32 matrix products in its steps as a TPU does by default; approximate.
      exact_numerics: compile its steps as T5X does, so that its numbers equal T5X's to the bit; else cheaply.
      model_dir: keep the run's output here instead of in the run's own folder.
      cwd: folder that the run starts in; relative paths of the config are relative to it.
      ignore: codes of findings that nobody wants to see.
      standins: what is generated: ``off`` (nothing), ``missing`` (what cannot be reached here) or ``all`` (everything
        in a bucket or on a hub).
      samples: the user's own rows in the place of data, each as the text of a
        :class:`~t5x_harness.standins.rows.Samples`.
      gcs: what ``/gcs`` is to the run, whose ``gs://`` is emulated: a ``folder``, or a mount as Cloud Storage ``fuse``
        makes it; ``off`` for no emulated Google Cloud.
      gcs_root: the user's folder with a folder for each bucket, which the emulated buckets begin with; None for none.
      golden: the file that the run's plan is kept in and compared with; None to keep none.
      golden_update: write that file anew, whatever it holds.
      read_seconds: how long resolve reads each split, to find examples that cannot be preprocessed.
      strict: warnings are errors.
      until: the last stage to run; None for all.
      aot: how the full-size programs are compiled for the slice, before anything is executed; None for not at all.
      prices: the user's own, in US dollars for an hour of one chip, by TPU generation.
    """

    gin_files: tuple[str, ...]
    bindings: tuple[str, ...] = ()
    search_paths: tuple[str, ...] = ()
    mode: Mode | None = None
    slice: str = DEFAULT_SLICE
    runtime: RuntimeChoice = RuntimeChoice.AUTO
    python_path: tuple[str, ...] = ()
    tfds_data_dir: str | None = None
    full_size: bool = False
    full_mesh: bool = False
    tpu_numerics: bool = False
    exact_numerics: bool = False
    model_dir: str | None = None
    cwd: str = "."
    ignore: tuple[str, ...] = ()
    standins: StandInPolicy = StandInPolicy.MISSING
    samples: tuple[str, ...] = ()
    gcs: GcsPaths = GcsPaths.FOLDER
    gcs_root: str | None = None
    golden: str | None = None
    golden_update: bool = False
    read_seconds: int = READ_SECONDS
    strict: bool = False
    until: Stage | None = None
    aot: AotMode | None = None
    prices: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        for field, kind in (("runtime", RuntimeChoice), ("gcs", GcsPaths), ("standins", StandInPolicy)):
            object.__setattr__(self, field, kind(getattr(self, field)))  # a plain string is taken, too
        if self.aot is not None:
            object.__setattr__(self, "aot", AotMode(self.aot))

    @property
    def name(self) -> str:
        """A short name for tables and folders: the stem of the last file."""
        return Path(self.gin_files[-1]).stem if self.gin_files else "run"


@dataclasses.dataclass(frozen=True)
class StageResult(JsonValue):
    """What one stage found and did.

    Attributes:
      facts: what the stage established, in the order to show it: ``("mesh", "data 8 x model 1")``.
      not_checked: what it could not judge, in words; never silently empty.
      exercised: how many units of real work were done: statements read by lint, examples by resolve, arrays planned,
        programs compiled, steps trained, examples evaluated, lines inferred; 0 means nothing was proved.
      seconds: wall time.
      log_tail: last lines of the run's log, when it failed.
      silenced: findings that the user ignores, by code or by a comment; they do not fail the stage.
      measures: the numbers among the facts, for programs; in the order in which they were established.
      tables: the facts that are tables, likewise.
    """

    stage: Stage
    outcome: Outcome
    findings: tuple[Finding, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    not_checked: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    exercised: int = 0
    seconds: float = 0.0
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
        """Returns a stage that was at work when its run was interrupted."""
        return cls(stage, Outcome.NOT_RUN, not_checked=(f"{stage}: interrupted",))


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
      name: of the jobs that it is one of: that of their last gin file.
      step: of the checkpoint.
      mixture: that it evaluates, or is fine-tuned on.
      result: its outcome; what an evaluation wrote, and not what was in the train job's folder before.
    """

    name: str
    step: int
    mixture: str
    result: RunResult


@dataclasses.dataclass(frozen=True)
class RunResult(JsonValue):
    """The outcome of a run, the same from every backend.

    Attributes:
      stages: in the order they ran.
      steps: last train step reached; 0 where nothing was trained.
      metrics: scalars by TensorBoard folder and tag, then step: ``metrics["train/loss"][4]``,
        ``metrics["inference_eval/my_task/eval/bleu"][4]``.
      checkpoints: what was written, by step.
      predictions: the JSON lines that evaluation and inference wrote, as dicts, in file order.
      operative_config: text of the config.gin that the run wrote; empty if it wrote none.
      log: path of the run's log file.
      model_dir: folder that the run wrote into.
      timings: seconds by stage.
      standins: what was generated because it cannot be reached here, in words.
      bindings: every parameter and macro that the config binds, as its text says and before any change; in the order
        in which they were first bound. Empty if the config was not read.
      seconds: how long was waited for all stages, imports included; ``timings`` is their own work.
      auxiliary: the runs of its auxiliary jobs; the metrics of those that evaluate are among ``metrics``, too.
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
        """Whether every stage passed, and those of the auxiliary jobs."""
        return all(s.outcome is Outcome.PASSED for s in self.stages) and all(r.result.passed for r in self.auxiliary)

    @property
    def timings(self) -> Mapping[str, float]:
        """Seconds by stage."""
        return {s.stage.value: s.seconds for s in self.stages}

    @property
    def changes(self) -> tuple[Change, ...]:
        """Everything the harness changed in the config, over all stages."""
        return tuple(c for s in self.stages for c in s.changes)

    def convert(
        self,
        output: str | None = None,
        *,
        to: str = "transformers",
        step: int | None = None,
        vocabulary: str | None = None,
        check: bool = True,
    ) -> Conversion:
        """Converts a checkpoint that the run wrote, so that what follows the training is tested, too.

        Args:
          output: a new folder; None for one beside the checkpoint.
          to: ``transformers``, ``safetensors`` or ``t5x``.
          step: of the checkpoint; None for the last.
          vocabulary: path of the SentencePiece model, or ``bytes``; None for the config's.
          check: for transformers, run the result there and compare what it computes with what T5X's network does;
            needs the extra ``convert``.

        Returns:
          What was made.

        Raises:
          ConversionError: it cannot be converted, or does not compute the same.
          ValueError: the run wrote no checkpoint, or none at that step.
        """
        from t5x_harness import convert

        by_step = {checkpoint.step: checkpoint for checkpoint in self.checkpoints}
        if not by_step or (step is not None and step not in by_step):
            written = ", ".join(map(str, by_step)) or "none"
            raise ValueError(
                f"the run wrote no checkpoint{'' if step is None else f' at step {step}'}: it has {written}"
            )
        return convert(
            by_step[max(by_step) if step is None else step].path,
            output,
            to=to,
            config=self.operative_config,
            vocabulary=vocabulary,
            check=check and to == "transformers",
        )

    def stage(self, stage: Stage | str) -> StageResult:
        """Returns the result of one stage.

        Raises:
          KeyError: the stage was not part of this run.
        """
        for result in self.stages:
            if result.stage == stage:
                return result
        raise KeyError(f"no stage {stage!s} in this run; it has {', '.join(s.stage for s in self.stages)}")
