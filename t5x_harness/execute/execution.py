"""A run in its process, with the objects that its stages build and share."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t5x_harness.execute.command_line import as_t5x
from t5x_harness.execute.host_files import RECORD
from t5x_harness.execute.numerics import note_numerics
from t5x_harness.execute.output import RunOutput, empty, not_written_to
from t5x_harness.execute.untaken import untaken
from t5x_harness.findings.stage_report import StageReport
from t5x_harness.gin.config import GinConfig, parse
from t5x_harness.gin.program import GinProgram
from t5x_harness.gin.reader import read
from t5x_harness.plan.checkpoint_source import restored_paths
from t5x_harness.runtime.choice import Runtime, activate, runtime_of
from t5x_harness.runtime.compile_cache import compile_cheaply
from t5x_harness.runtime.cpu_isa import pin
from t5x_harness.slices.devices import force_cpu_devices
from t5x_harness.slices.pod import Pod
from t5x_harness.slices.slice import get_slice
from t5x_harness.spec import Change, Finding, RunSpec, Severity, Stage, StageResult
from t5x_harness.upstream.jax import (
    JaxLacksRules,
    compile_once,
    join_pod_when_needed,
    lowered,
    share_entries_of_hosts,
    use_tpu_numerics,
)
from t5x_harness.upstream.short_run import configure_for_short_run
from t5x_harness.upstream.t5x import install_mesh

if TYPE_CHECKING:
    from t5x_harness.execute.prepare import PreparedRun
    from t5x_harness.plan.planned import Planned
    from t5x_harness.resolve.datasets import Registrations
    from t5x_harness.resolve.resolved import Resolved
    from t5x_harness.standins.run import StandIns

Progress = Callable[[dict[str, Any]], None]

_MODELS = 8
"""The number of model methods that share their steps; the process of one run rarely has two."""


def open_execution(argument: Mapping[str, Any], progress: Progress) -> Execution:
    """Sets up this process for a run; devices and runtime are fixed from here on.

    Args:
      argument: ``spec`` (a RunSpec as JSON), ``workspace`` (a folder for this run), and optionally ``log`` (path of the
        log, for messages).
      progress: a function that is called with ``{"stage", "step", "of"}`` while a stage works.

    Raises:
      RuntimeChoiceError: the requested runtime cannot be used here.
      DevicesTooLate, SliceError: this process already has other devices, or there is no such slice.
    """
    spec = RunSpec.from_json(argument["spec"])
    runtime = runtime_of(spec)
    activate(runtime)
    slice_ = get_slice(spec.slice)
    if not spec.settings.exact_numerics:
        compile_cheaply()
    pin(spec.settings.cpu_isa)
    pod = Pod.from_environment(os.environ)
    if pod is not None:
        join_pod_when_needed(pod)
        share_entries_of_hosts()
    compile_once()
    force_cpu_devices(slice_.num_devices // (pod.processes if pod else 1))
    install_mesh(slice_)
    configure_for_short_run()
    share_steps()
    log = str(argument.get("log", ""))
    return Execution(spec, Path(argument["workspace"]).absolute(), runtime, log, progress, pod)


def share_steps() -> None:
    """Makes stages share the steps that each of them would otherwise trace, lower and compile again.

    To T5X, training, evaluation and inference are separate jobs. Each creates the function that decodes or scores a
    batch, by which JAX caches traces. The stages of one run share a process and a model that nobody changes between
    them, so from now on the same method of the same model has the same step; only the embedded T5X supports this.
    """
    inference: Any = sys.modules.get("t5x._inference")
    if inference is None or hasattr(inference.step_with_indices, "__wrapped__"):
        return
    make = inference.step_with_indices
    kept = functools.lru_cache(maxsize=_MODELS)(make)

    @functools.wraps(make)
    def shared(infer_step: Any) -> Any:
        return kept(infer_step) if inspect.ismethod(infer_step) else make(infer_step)

    inference.step_with_indices = shared


class CannotGoOn(Exception):
    """The harness lacks something that a stage needs to begin; neither T5X nor the user's code has failed."""

    def __init__(self, text: str, fix: str) -> None:
        super().__init__(text)
        self.fix = fix


@dataclasses.dataclass(frozen=True)
class Trained:
    """The outcome of training.

    Attributes:
      step: the last step.
      checkpoint: the folder of the last checkpoint, as passed to T5X; None if none was written.
      model: the model that was trained; None if it was not passed to the trainer by name.
    """

    step: int
    checkpoint: str | None
    model: Any = None


class Execution:
    """The objects that the stages of one run build, in order; a later stage uses those of earlier ones.

    Attributes:
      spec: the run.
      workspace: its folder, which the hosts of a pod share.
      pod: the place of this process among the hosts of a pod; None if it is alone.
      runtime: the T5X that runs.
      slice: the slice whose mesh it has.
      progress: the function that receives its progress events while it works.
      output: the folder that it writes into; known once the config is parsed.
      config: the parsed config.
      standins: the stand-ins for data, vocabularies and checkpoints.
      resolved: the objects that the config names, at full size.
      planned: the full-size run as shapes; None if the slice has no mesh for it.
      sandboxed: the paths that were changed, which the first stage that executes reports.
      trained: the outcome of training; None before it.
      small: the run as it is executed; None if nothing was prepared for execution.
    """

    def __init__(
        self,
        spec: RunSpec,
        workspace: Path,
        runtime: Runtime,
        log: str,
        progress: Progress,
        pod: Pod | None = None,
    ) -> None:
        self.spec = spec
        self.workspace = workspace
        self.pod = pod
        self.runtime = runtime
        self.progress = progress
        self.slice = get_slice(spec.slice)
        self.output: RunOutput | None = None
        self.config: GinConfig | None = None
        self.standins: StandIns | None = None
        self.resolved: Resolved | None = None
        self.planned: Planned | None = None
        self.sandboxed: list[Change] = []
        self.trained: Trained | None = None
        self.small: PreparedRun | None = None
        self._early: StageReport | None = None  # until a stage takes it over
        self._failed_early: Exception | None = None
        self._log = log
        self._lowered_before = lowered()

    def run(self, stage: Stage, work: Callable[[Execution, StageReport], None]) -> dict[str, Any]:
        """Runs one stage.

        Anything that the user's config and code raise becomes findings, and the traceback goes to the log.

        Args:
          stage: the stage.
          work: the function that does its work.

        Returns:
          A :class:`~t5x_harness.spec.StageResult` as JSON.
        """
        if not self.spec.settings.timings:
            return self._run(stage, work).to_json()
        from t5x_harness.timings.stage import measured

        return measured(lambda: self._run(stage, work), self.runtime.location).to_json()

    def _run(self, stage: Stage, work: Callable[[Execution, StageReport], None]) -> StageResult:
        from t5x_harness.resolve.explanation import log_traceback

        report = StageReport(stage, self.spec.settings.ignore, self.spec.cwd)
        self.progress({"stage": stage.value})
        stopped: Exception | None = None
        try:
            try:
                use_tpu_numerics(self.spec.settings.tpu_numerics)  # other runs may share this process: --in-process
            except JaxLacksRules as error:
                raise CannotGoOn(str(error), "install JAX 0.10.2, or run without --tpu-numerics") from None
            with as_t5x(self.spec, self.runtime.location):
                work(self, report)
            if self.config is not None and stage.value == self.config.mode.value:
                report.add(untaken(self.config, stage))
        except Exception as error:  # anything that the user's code, Gin, SeqIO or T5X raises is this run's result
            log_traceback(error)
            stopped = error
        if stopped is None and stage.executes and not self.leads:
            # The first host writes the files and computes the metrics, and so it alone judges them.
            report.findings, report.exercised, report.unproved = [], 1, ""
        if stopped is None and stage in (Stage.RESOLVE, Stage.PLAN) and not report.failed:
            stopped = self._error_of_t5x(report)
        # After the except block: otherwise the exception would be the context of any error that T5X raises when asked.
        if stopped is not None and (finding := self._explained(stopped, report)) is not None:
            if self._log and finding.fix is not None:
                finding = dataclasses.replace(finding, fix=finding.fix.replace("the run's log", self._log))
            report.end(finding)
        if stage.executes and self.spec.settings.tpu_numerics:
            note_numerics(report, lowered().since(self._lowered_before))
        if self.standins is not None:
            report.changes += self.standins.take_changes()
            report.not_checked += self.standins.take_doubts()
        return report.result()

    def open_config(self, standins: tuple[Path, int | None] | None = None) -> Registrations:
        """Parses the config, with stand-ins for anything out of reach here; returns where its tasks were registered.

        Args:
          standins: the folder of another process's stand-ins, which are used, and the number of rows of the model's
            embedding that they fit; None to generate them.
        """
        import seqio

        from t5x_harness.resolve.datasets import Registrations
        from t5x_harness.standins.run import StandIns, rows_in_text

        self.own_folder.mkdir(parents=True, exist_ok=True)
        if self.spec.settings.tfds_data_dir:
            seqio.set_tfds_data_dir_override(self.spec.settings.tfds_data_dir)
        folder, rows = standins or (self.own_folder / "standin", rows_in_text(self._read_program()))
        self.standins = StandIns(self.spec, folder, rows)
        self.standins.install()
        registrations = Registrations.record()
        self.config = parse(self.spec, Path(self.runtime.location).parent)
        return registrations

    def plan_or_stop(self) -> Planned:
        """Returns the plan.

        Raises:
          CannotGoOn: the run has no plan.
        """
        if self.planned is None:
            raise CannotGoOn("the slice has no mesh for this config", "run the plan stage, which says why")
        return self.planned

    def prepared(
        self, report: StageReport, spec: RunSpec | None = None, *, in_bucket: bool = True, steps: int | None = None
    ) -> PreparedRun:
        """Shrinks the config once, before the first stage that executes it, and makes its checkpoint if it needs one.

        Args:
          report: the report of the stage.
          spec: the run to execute, if its size is not that of this run.
          in_bucket: whether that checkpoint may be written to the exact bucket path that the config names.
          steps: the train steps of a shrunk run; None for a few.
        """
        from t5x_harness.execute.hosts import wait_for_hosts
        from t5x_harness.execute.prepare import prepare

        if self._early is not None and report is not self._early:
            early, self._early = self._early, None
            report.take(early)
            if self._failed_early is not None:
                raise self._failed_early
        if self.small is None:
            plan = self.plan_or_stop()
            assert self.resolved is not None
            report.changes += self.sandboxed
            if self.leads:
                empty(self.written, restored_paths(self.resolved.config))
            if doubt := not_written_to(self.resolved.config, self.written):
                report.not_checked.append(doubt)
            sized = spec or self.spec
            self.small = prepare(
                self.resolved, plan, sized, self.workspace, report, self.pod, in_bucket=in_bucket, steps=steps
            )
            if self.pod is not None:
                wait_for_hosts("prepared")
        return self.small

    def prepare_early(self) -> PreparedRun:
        """Prepares the run before the first stage that executes it; what is found is that stage's.

        Raises:
          Exception: it cannot be prepared; the stage raises the same.
        """
        if self.small is None:
            self._early = StageReport(Stage.TRAIN, self.spec.settings.ignore, self.spec.cwd)
            try:
                self.prepared(self._early)
            except Exception as error:
                self._failed_early = error
                raise
        assert self.small is not None
        return self.small

    @property
    def host(self) -> int:
        """The number of this process among the hosts of a pod; 0 if it is alone."""
        return 0 if self.pod is None else self.pod.index

    @property
    def leads(self) -> bool:
        """Whether this process is the only one, or the first host of a pod."""
        return self.host == 0

    @property
    def own_folder(self) -> Path:
        """The folder for what each host of a pod makes for itself; the workspace of a process that is alone."""
        return self.workspace if self.pod is None else self.workspace / f"host-{self.host}"

    @property
    def written(self) -> RunOutput:
        """The folder that the run writes into; known once the config is parsed."""
        assert self.output is not None
        return self.output

    @property
    def recorded(self) -> Path:
        """The file that the training is recorded in, if the run is going to repeat it."""
        return self.workspace / RECORD

    def trained_checkpoint(self) -> str:
        """Returns the last checkpoint that training wrote.

        Raises:
          CannotGoOn: training wrote none.
        """
        if self.trained is None or self.trained.checkpoint is None:
            raise CannotGoOn(
                "training wrote no checkpoint, so there is none to evaluate or infer with",
                "let the run save: bind a SaveCheckpointConfig whose period is above 0",
            )
        return self.trained.checkpoint

    def _explained(self, error: Exception, report: StageReport) -> Finding | None:
        """Returns the finding for the error that ended a stage.

        If no rule knows the error, or if the harness stopped before T5X started, T5X is asked. Returns None if an
        operation of the harness failed and the findings already give the reason.
        """
        from t5x_harness.execute.asking import error_of_t5x
        from t5x_harness.resolve.exceptions import passed_through_t5x, raised_by_harness
        from t5x_harness.resolve.explanation import explain, explain_misfit

        if isinstance(error, CannotGoOn):
            return Finding("RUN08", Severity.ERROR, report.stage, str(error), fix=error.fix)
        finding = explain(error, report.stage, self.config, None if self.config else self._read_program())
        if not self._may_ask or self.config is None or finding.code not in ("RUN01", "RUN12"):
            return finding
        is_own = raised_by_harness(error)
        if is_own and report.failed:
            return None
        if passed_through_t5x(error) and not is_own:
            return finding
        if (said := error_of_t5x(self.config, self.own_folder / "asked")) is not None:
            return explain(said, report.stage, self.config)
        return (explain_misfit(error, report.stage, self.config) if is_own else None) or finding

    def _error_of_t5x(self, report: StageReport) -> Exception | None:
        """Asks T5X about a config with nothing to judge, or with values of wrong types, and returns the error.

        Returns None if T5X accepts it, or cannot be asked yet.
        """
        from t5x_harness.resolve.suspects import users_misfits

        if not self._may_ask or self.config is None or self.output is None:
            return None
        planned = self.planned if report.stage is Stage.PLAN and users_misfits(self.config) else None
        if report.exercised and planned is None:
            return None
        from t5x_harness.execute.asking import error_of_programs, error_of_t5x

        error = error_of_t5x(self.config, self.own_folder / "asked")
        return error or (error_of_programs(planned) if planned else None)

    @property
    def _may_ask(self) -> bool:
        """Whether T5X may be asked: it needs all hosts of a pod, which may differ in whether they have a question."""
        return self.pod is None

    def _read_program(self) -> GinProgram:
        return read(self.spec, t5x_parent=Path(self.runtime.location).parent)
