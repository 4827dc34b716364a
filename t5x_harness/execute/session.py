"""A run in its process: the object whose methods are the stages, sharing what they build.

:func:`open_session` is what a worker calls.  Each stage returns a :class:`~t5x_harness.spec.StageResult` as JSON and
never raises for what the user's config or code does wrong: that becomes findings, and the traceback goes to the log.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t5x_harness.execute.command_line import as_t5x
from t5x_harness.execute.numerics import Numerics
from t5x_harness.execute.sandbox import OutputFolder, empty, not_written_to, output_folder, sandbox
from t5x_harness.execute.sharing import share_steps
from t5x_harness.runtime.choice import Runtime, activate, runtime_of
from t5x_harness.runtime.compile_options import compile_cheaply
from t5x_harness.slices.devices import force_cpu_devices
from t5x_harness.slices.slice import get_slice
from t5x_harness.spec import Change, Finding, Mode, Reason, RunSpec, Severity, Stage
from t5x_harness.upstream.short_run import configure_for_short_run
from t5x_harness.upstream.t5x import install_mesh
from t5x_harness.upstream.tpu_numerics import JaxLacksRules

if TYPE_CHECKING:
    from t5x_harness.execute.prepare import Prepared
    from t5x_harness.execute.train import Trained
    from t5x_harness.findings.stage_report import StageReport
    from t5x_harness.gin.config import GinConfig
    from t5x_harness.gin.program import GinProgram
    from t5x_harness.plan.planned import Planned
    from t5x_harness.resolve.registrations import Registrations
    from t5x_harness.resolve.resolved import Resolved
    from t5x_harness.standins.run import StandIns

Progress = Callable[[dict[str, Any]], None]


def open_session(argument: Mapping[str, Any], progress: Progress) -> Session:
    """Makes the session of a run in this process; devices and runtime are fixed from here on.

    Args:
      argument: ``spec`` (a RunSpec as JSON), ``workspace`` (a folder for this run), and optionally ``runtime`` (a
        Runtime as a mapping; found by the spec's choice otherwise) and ``log`` (path of the log, for messages).
      progress: called with ``{"stage", "step", "of"}`` while a stage works.

    Raises:
      RuntimeChoiceError: the runtime that is asked for cannot be used here.
      DevicesTooLate: this process already has other devices.
      SliceError: there is no such slice.
    """
    spec = RunSpec.from_json(argument["spec"])
    described = argument.get("runtime")
    runtime = Runtime(**described) if described else runtime_of(spec)
    activate(runtime)
    slice_ = get_slice(spec.slice)
    if not spec.settings.exact_numerics:
        compile_cheaply()
    force_cpu_devices(slice_.num_devices)
    install_mesh(slice_)
    configure_for_short_run()
    share_steps()
    return Session(spec, Path(argument["workspace"]).absolute(), runtime, str(argument.get("log", "")), progress)


class CannotGoOn(Exception):
    """The harness lacks what a stage begins with; not T5X, nor the user's code, has stopped."""

    def __init__(self, text: str, fix: str) -> None:
        super().__init__(text)
        self._fix = fix

    def finding(self, stage: Stage) -> Finding:
        """Returns what to say of it."""
        return Finding("RUN08", Severity.ERROR, stage, str(self), fix=self._fix)


class Session:
    """The stages of one run, called in order; what an earlier one built is used by the later ones."""

    def __init__(self, spec: RunSpec, workspace: Path, runtime: Runtime, log: str, progress: Progress) -> None:
        self._spec = spec
        self._workspace = workspace
        self._runtime = runtime
        self._log = log
        self._progress = progress
        self._slice = get_slice(spec.slice)
        self._numerics = Numerics(spec)
        self._output: OutputFolder | None = None  # known once the config is parsed
        self._config: GinConfig | None = None
        self._standins: StandIns | None = None
        self._resolved: Resolved | None = None
        self._plan: Planned | None = None
        self._small: Prepared | None = None  # the run as it is executed
        self._prepared_changes: list[Change] = []
        self._trained: Trained | None = None
        self._lowered: Any = None  # of a process that compiles
        self._turn = contextlib.ExitStack()  # to do so: the end of the process gives it back, however it comes

    def resolve(self) -> dict[str, Any]:
        """Parses the config, builds what it names and samples its data."""
        return self._stage(Stage.RESOLVE, self._resolve)

    def plan(self) -> dict[str, Any]:
        """Plans the run at full size, in shapes only."""
        return self._stage(Stage.PLAN, self._plan_full_size)

    def train(self) -> dict[str, Any]:
        """Trains the shrunk config."""
        return self._stage(Stage.TRAIN, self._train)

    def eval(self) -> dict[str, Any]:
        """Evaluates: an eval config by itself, a train config's last checkpoint otherwise."""
        return self._stage(Stage.EVAL, self._eval)

    def infer(self) -> dict[str, Any]:
        """Infers: an infer config by itself, with a train config's last checkpoint otherwise."""
        return self._stage(Stage.INFER, self._infer)

    def job(self, shrink: bool, steps: int | None = None, standins: bool = False) -> dict[str, Any]:
        """Returns what a job that makes this run is to bind beside its config; see :mod:`t5x_harness.execute.for_job`.

        Args:
          shrink: whether the job runs at the sizes that the stages here have.
          steps: train steps of the job; None for those of the config, or for few where it is shrunk.
          standins: whether a checkpoint that cannot be read here is generated at the config's sizes, too; for a
            shrunk run one always is.

        Returns:
          ``prepared``: a StageResult with the changes; ``output`` and ``first_step``: see that module.
        """
        from t5x_harness.execute import for_job

        def prepare(report: StageReport) -> None:
            if shrink or standins:
                # The job has the slice itself.
                sized = self._spec.with_settings(full_size=not shrink, full_mesh=True)
                self._prepare(report, sized, in_bucket=False, steps=steps)
            if steps is not None and not shrink:
                assert self._config is not None
                report.changes += for_job.limit_steps(self._config, steps)
            report.exercised = 1

        prepared = self._stage(Stage.PLAN, prepare)
        return {
            "prepared": prepared,
            "output": for_job.output_binding(self._config, self._output),
            "first_step": self._small.first_step if self._small else for_job.first_step(self._config),
        }

    def artifacts(self) -> dict[str, Any]:
        """Returns what the run wrote, as the parts of a RunResult that come from its folder."""
        from t5x_harness.execute.artifacts import checkpoints_in, json_lines, keep, scalars_in

        model_dir = self._workspace / "model"
        if self._output and self._output.is_in_bucket:
            keep(self._output.local, model_dir)  # no later run shall see it, and buckets are for all runs
        elif self._output:
            model_dir = self._output.local
        metrics = scalars_in(model_dir) if model_dir.is_dir() else {}
        predictions = []
        for part in ("eval", "infer"):
            folder = self._workspace / part
            if folder.is_dir():
                metrics |= scalars_in(folder, f"{part}/")
                predictions += json_lines(folder)
        if not predictions and model_dir.is_dir():
            predictions = json_lines(model_dir)
        trains = self._config is None or self._config.mode is Mode.TRAIN
        checkpoints = checkpoints_in(model_dir) if trains else []  # others may restore what is there, and write none
        config = model_dir / "config.gin"
        return {
            "steps": self._trained.step if self._trained else 0,
            "metrics": {tag: {str(step): value for step, value in steps.items()} for tag, steps in metrics.items()},
            "checkpoints": [dataclasses.asdict(c) for c in checkpoints],
            "predictions": predictions,
            "operative_config": config.read_text(encoding="utf-8") if config.is_file() else "",
            "model_dir": str(model_dir),
            "runtime": str(self._runtime),
        }

    @property
    def _t5x_parent(self) -> Path:
        return Path(self._runtime.location).parent

    def _stage(self, stage: Stage, work: Callable[[StageReport], None]) -> dict[str, Any]:
        """Runs one stage; everything that the user's config and code may raise becomes a finding."""
        from t5x_harness.resolve.explanation import log_traceback

        report = self._report(stage)
        self._progress({"stage": stage.value})
        stopped: Exception | None = None
        try:
            self._use_numerics()
            with as_t5x(self._spec, self._runtime.location):
                work(report)
        except Exception as error:  # whatever the user's code, Gin, SeqIO or T5X raises is this run's result
            log_traceback(error)
            stopped = error
        if stopped is None and stage in (Stage.RESOLVE, Stage.PLAN) and not report.failed:
            stopped = self._error_of_t5x(report)
        # Not while the exception is handled: it would be the context of what T5X raises when it is asked.
        if stopped is not None and (finding := self._explained(stopped, report)) is not None:
            report.end(self._with_log(finding))
        if stage in (Stage.TRAIN, Stage.EVAL, Stage.INFER):
            self._numerics.note(report)
        if self._standins is not None:
            report.changes += self._standins.take_changes()
            report.not_checked += self._standins.take_doubts()
        return report.result().to_json()

    def _explained(self, error: Exception, report: StageReport) -> Finding | None:
        """Returns what to say of what ended a stage; None if its findings say why already."""
        from t5x_harness.execute.asking import explain_with_t5x

        if isinstance(error, CannotGoOn):
            return error.finding(report.stage)
        program = None if self._config else self._read_program()
        return explain_with_t5x(error, report, self._config, program, self._asked)

    def _error_of_t5x(self, report: StageReport) -> Exception | None:
        """Returns what T5X says of a config of which there was nothing to judge, or of values not of their types.

        None if it is content, or cannot be asked yet.
        """
        from t5x_harness.resolve.suspects import users_misfits

        if self._config is None or self._output is None:
            return None
        planned = self._plan if report.stage is Stage.PLAN and users_misfits(self._config) else None
        if report.exercised and planned is None:
            return None
        from t5x_harness.execute.asking import error_of_programs, error_of_t5x

        return error_of_t5x(self._config, self._asked) or (error_of_programs(planned) if planned else None)

    @property
    def _asked(self) -> Path:
        """The folder for what T5X writes when it is only asked."""
        return self._workspace / "asked"

    def _use_numerics(self) -> None:
        """Turns to the numerics of this run, which may share its process with others; see ``--in-process``."""
        try:
            self._numerics.use()
        except JaxLacksRules as error:
            raise CannotGoOn(str(error), "install JAX 0.10.2, or run without --tpu-numerics") from None

    def _report(self, stage: Stage) -> StageReport:
        from t5x_harness.findings.stage_report import StageReport

        return StageReport(stage, self._spec.settings.ignore, self._spec.cwd)

    def _with_log(self, finding: Finding) -> Finding:
        if not self._log or finding.fix is None:
            return finding
        return dataclasses.replace(finding, fix=finding.fix.replace("the run's log", self._log))

    def _read_program(self) -> GinProgram:
        from t5x_harness.gin.reader import read

        return read(self._spec, t5x_parent=self._t5x_parent)

    def _resolve(self, report: StageReport) -> None:
        from t5x_harness.resolve.stage import resolve

        registrations = self._open_config()
        config = self._config
        assert config is not None
        assert self._standins is not None
        self._output = output_folder(config, self._spec.settings.model_dir, self._workspace)
        policy = self._spec.settings.standins
        changes = sandbox(config, self._output.address, self._workspace, policy)
        report.changes += [change for change in changes if change.why is Reason.GIVEN]
        self._prepared_changes = [change for change in changes if change.why is not Reason.GIVEN]
        self._resolved = resolve(
            config, self._slice, registrations, self._standins, report, self._spec.settings.read_seconds
        )

    def _open_config(self) -> Registrations:
        """Parses the config, with stand-ins for what it cannot reach here; returns where its tasks were registered."""
        import seqio

        from t5x_harness.gin.config import parse
        from t5x_harness.resolve.registrations import Registrations
        from t5x_harness.standins.run import StandIns, rows_in_text

        self._workspace.mkdir(parents=True, exist_ok=True)
        if self._spec.settings.tfds_data_dir:
            seqio.set_tfds_data_dir_override(self._spec.settings.tfds_data_dir)
        program = self._read_program()
        self._standins = StandIns(self._spec, self._workspace / "standin", rows_in_text(program))
        self._standins.install()
        registrations = Registrations.record()
        self._config = parse(self._spec, self._t5x_parent)
        return registrations

    def programs(self) -> dict[str, Any]:
        """Returns what the aot stage has to know of a planned run; see :class:`t5x_harness.aot.request.AotRun`."""
        from t5x_harness.aot.run_programs import aot_run

        if self._plan is None:
            raise CannotGoOn("the slice has no mesh for this config", "run the plan stage, which says why")
        return aot_run(self._plan).to_json()

    def lower(self, program: dict[str, Any]) -> dict[str, Any]:
        """Lowers one program of a run for the slice, in a process that does nothing else.

        Args:
          program: an :class:`~t5x_harness.aot.request.ProgramSpec` as JSON.

        Returns:
          A :class:`~t5x_harness.aot.request.LoweredProgram` as JSON, or ``finding``: what is wrong, as JSON.
        """
        from t5x_harness.aot.programs import lower
        from t5x_harness.aot.refusals import NotCompiled
        from t5x_harness.aot.request import ProgramSpec
        from t5x_harness.resolve.explanation import explain, log_traceback

        try:
            self._open_config()
            assert self._config is not None
            self._lowered, described = lower(ProgramSpec.from_json(program), self._config, self._slice)
        except Exception as error:  # whatever the user's model, T5X or JAX raises
            log_traceback(error)
            if isinstance(error, NotCompiled):
                return {"finding": error.finding.to_json()}
            return {"finding": explain(error, Stage.AOT, self._config, None).to_json()}
        return described.to_json()

    def await_turn(self, lock: str) -> None:
        """Waits until no other process compiles for a TPU; from then until its end, this one does.

        Args:
          lock: the file that is locked.
        """
        from t5x_harness.aot.compiler import one_at_a_time

        waiting = {"stage": Stage.AOT.value, "waiting": True}
        self._turn.enter_context(one_at_a_time(Path(lock), lambda: self._progress(waiting)))

    def compile(self, folder: str, until: str) -> dict[str, Any]:
        """Compiles the program that was lowered; see :func:`t5x_harness.aot.compiler.compile_program`.

        Args:
          folder: a new folder, for what the compiler says of it.
          until: an :class:`~t5x_harness.aot.compiler.Until`.

        Returns:
          A :class:`~t5x_harness.aot.compiler.CompilerResult` as JSON.
        """
        from t5x_harness.aot.compiler import Until, compile_program

        return compile_program(self._lowered, Path(folder), Until(until)).to_json()

    def _plan_full_size(self, report: StageReport) -> None:
        from t5x_harness.plan.stage import plan

        assert self._resolved is not None
        self._plan = plan(self._resolved, self._slice, report)

    def _prepare(
        self, report: StageReport, spec: RunSpec | None = None, *, in_bucket: bool = True, steps: int | None = None
    ) -> Prepared:
        """Shrinks the config once, before the first stage that executes it, and makes its checkpoint if need be.

        Args:
          report: of the stage.
          spec: what to run, where it is not of the size of this session's.
          in_bucket: whether that checkpoint may lie at the very path in a bucket that the config names.
          steps: train steps of a shrunk run; None for few.
        """
        from t5x_harness.execute.prepare import prepare
        from t5x_harness.plan.checkpoint_source import restored_paths

        if self._small is None:
            if self._plan is None:
                raise CannotGoOn("the slice has no mesh for this config", "run the plan stage, which says why")
            assert self._resolved is not None
            report.changes += self._prepared_changes
            empty(self._written, restored_paths(self._resolved.config))
            if doubt := not_written_to(self._resolved.config, self._written):
                report.not_checked.append(doubt)
            sized = spec or self._spec
            self._small = prepare(
                self._resolved, self._plan, sized, self._workspace, report, in_bucket=in_bucket, steps=steps
            )
        return self._small

    def _train(self, report: StageReport) -> None:
        from t5x_harness.execute.train import train
        from t5x_harness.resolve.datasets import few_examples

        small = self._prepare(report)
        with few_examples(small.all_tasks, small.examples):
            self._trained = train(
                small.config,
                self._written,
                small.first_step,
                report,
                lambda step: self._progress({"stage": "train", "step": step, "of": small.steps}),
            )

    def _eval(self, report: StageReport) -> None:
        from t5x_harness.execute import evaluate
        from t5x_harness.resolve.datasets import few_examples

        small = self._prepare(report)
        with few_examples(small.all_tasks, small.examples):
            if small.config.mode is Mode.EVAL:
                evaluate.evaluate_config(small, report)
            else:
                has_metrics = small.has_metrics(small.evaluated)
                by = evaluate.evaluate_checkpoint if has_metrics else evaluate.teacher_forced
                by(small, self._model(small), self._checkpoint(), self._workspace / "eval", report)

    def _infer(self, report: StageReport) -> None:
        from t5x_harness.execute import infer
        from t5x_harness.resolve.datasets import few_examples

        small = self._prepare(report)
        with few_examples(small.all_tasks, small.examples):
            if small.config.mode is Mode.INFER:
                infer.infer_config(small, self._written.local, report)
            else:
                infer.infer_checkpoint(small, self._model(small), self._checkpoint(), self._workspace / "infer", report)

    @property
    def _written(self) -> OutputFolder:
        """The folder that the run writes into; known once the config is parsed."""
        assert self._output is not None
        return self._output

    def _model(self, small: Prepared) -> Any:
        """Returns the trained model, so that what was traced of it serves the later stages, too."""
        trained = self._trained.model if self._trained is not None else None
        return trained if trained is not None else small.model

    def _checkpoint(self) -> str:
        if self._trained is None or self._trained.checkpoint is None:
            raise CannotGoOn(
                "training wrote no checkpoint, so there is none to evaluate or infer with",
                "let the run save: bind a SaveCheckpointConfig whose period is above 0",
            )
        return self._trained.checkpoint
