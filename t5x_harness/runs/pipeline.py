"""A run from end to end: lint here, everything else in a worker, each stage once and only if those before it passed."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from t5x_harness.findings.silencing import split_silenced
from t5x_harness.findings.work import BEFORE_EXECUTION, judged, proved_nothing
from t5x_harness.gin.provenance import bound_values
from t5x_harness.gin.reading import leave_modules_open, program_of
from t5x_harness.lint.classify import RunIf
from t5x_harness.lint.own_lines import on_own_lines
from t5x_harness.lint.stage import lint_program
from t5x_harness.plan.arrays import TEMPORARIES_UNKNOWN
from t5x_harness.runs.stages import Stages, stages_of, with_mode
from t5x_harness.spec import AotMode, Finding, Location, Outcome, RunResult, RunSpec, Severity, Stage, StageResult
from t5x_harness.system.closing import Closing

if TYPE_CHECKING:
    from t5x_harness.aot.compiling import Compiler
    from t5x_harness.aot.request import AotRun
    from t5x_harness.gin.program import GinProgram
    from t5x_harness.google.pool import GooglePool
    from t5x_harness.runs.local import LocalBackend
    from t5x_harness.workers import InProcess, Zygote

OnProgress = Callable[[Mapping[str, Any]], None]


class Backend(Protocol):
    """What runs the stages after lint: :class:`~t5x_harness.runs.local.LocalBackend`, or the one for Vertex AI."""

    def stage(self, stage: Stage) -> StageResult:
        """Returns the result of a stage, run now if it was not yet."""

    def result(self) -> RunResult:
        """Returns the outcome of the stages that were asked for so far, and what they wrote."""

    def close(self) -> None:
        """Ends the run's process. May be called again."""


class RemoteBackend(Backend, Protocol):
    """One whose stages are done elsewhere, and take long."""

    def submit_early(self) -> None:
        """Begins them, without waiting for them."""


class BackendFactory(Protocol):
    """Makes the backend whose executing stages are a job elsewhere."""

    @property
    def aot(self) -> AotMode | None:
        """How the run's programs are compiled for the slice before; None for not at all."""

    def __call__(self, spec: RunSpec, local: LocalBackend) -> RemoteBackend:
        """Makes it of a run, out of the one for here."""


class Pipeline(Closing):
    """One run; a context manager that ends the run's process.

    Args:
      spec: what to run; its mode is seen from the config if it is None.
      zygote: starts the run's process, as :class:`t5x_harness.workers.Zygote` does; lint alone needs none.
      workspace: a folder for the run's own files; lint alone needs none.
      timeout: seconds that one stage may take; None for no limit.
      on_progress: called with events such as ``{"stage": "train", "step": 3, "of": 8}``.
      t5x_parent: the folder with the package ``t5x`` in use, or that package; None looks for it.
      run_if: when lint judges the files as a run, and not as a fragment.
      lint_on_slice: whether lint judges by the slice, as plan does.
      env: variables for the run's process; None takes one out.
      google: the emulated Google Cloud that the run's process uses; None for none.
      promote: makes the backend of a run that is a job elsewhere; None for all stages here.
    """

    def __init__(
        self,
        spec: RunSpec,
        *,
        zygote: Zygote | InProcess | None,
        workspace: Path | None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        t5x_parent: str | Path | None = None,
        run_if: RunIf = RunIf.ALWAYS,
        lint_on_slice: bool = False,
        env: Mapping[str, str | None] | None = None,
        google: GooglePool | None = None,
        promote: BackendFactory | None = None,
    ) -> None:
        # A promoted run has the numbers of a TPU.
        self._spec = spec.with_settings(tpu_numerics=False, aot=promote.aot) if promote else spec
        self._zygote = zygote
        self._workspace = workspace
        self._timeout = timeout
        self._on_progress = on_progress
        self._t5x_parent = t5x_parent
        self._run_if = run_if
        self._lint_on_slice = lint_on_slice
        self._env = env
        self._google = google
        self._promote = promote
        self._led: Mapping[str, str] | None = None  # how the run's process uses it
        self._program: GinProgram | None = None
        self._remote: RemoteBackend | None = None
        self._backend: Backend | None = None
        self._local: LocalBackend | None = None
        self._seconds = 0.0
        self._at_work: Stage | None = None

    @property
    def spec(self) -> RunSpec:
        """What is run, with the mode filled in where the config shows it."""
        self._spec = with_mode(self._spec, self._read)
        return self._spec

    @functools.cached_property
    def _stages(self) -> Stages:
        return Stages(
            self.spec, stages_of(self.spec.mode, self.spec.settings.until, self.spec.settings.aot), self._run_timed
        )

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages that apply, in order."""
        return self._stages.all

    def stage(self, stage: Stage) -> StageResult:
        """Returns the result of one stage, run now if it was not yet, after the stages that it needs.

        Raises:
          ValueError: the run has no such stage.
        """
        return self._stages.result(stage)

    def submit_early(self) -> None:
        """Sends the run's job, if it is one and every stage before it has passed, without waiting for it."""
        before = [stage for stage in self.stages if stage in BEFORE_EXECUTION]
        executes = self._promote is not None and len(self.stages) > len(before)
        if executes and all(self.stage(stage).outcome is not Outcome.FAILED for stage in before):
            self._open()
            assert self._remote is not None
            self._remote.submit_early()

    def aot(self) -> tuple[AotRun, Compiler]:
        """Returns what the run compiles, once its plan has passed, and what compiles it for a slice, this or another.

        Raises:
          WorkerError: the run's process is gone.
        """
        self._open()
        assert self._local is not None
        return self._local.aot()

    def result(self) -> RunResult:
        """Returns the outcome of the stages that were asked for so far."""
        asked = _each_said_once(self._shown)
        failed = any(stage.outcome is Outcome.FAILED for stage in asked)
        # What a job does not do, or was not sent to do, is not part of the run; what a failure left out is.
        stages = tuple(asked) if failed else _as_far_as_run(asked)
        result = RunResult(self.spec, stages) if self._backend is None else self._backend.result()
        bindings = bound_values(self._program) if self._program is not None else ()
        return dataclasses.replace(result, spec=self.spec, stages=stages, bindings=bindings, seconds=self._seconds)

    def known(self) -> RunResult:
        """Returns the outcome of the stages so far, while or after one is interrupted; nothing is waited for."""
        stages = self._shown
        if self._at_work is not None and all(stage.stage is not self._at_work for stage in stages):
            stages.append(StageResult.interrupted(self._at_work))
        return RunResult(self.spec, tuple(stages), seconds=self._seconds)

    @property
    def _shown(self) -> list[StageResult]:
        """The stages as the whole run knows them: without what one could not judge and a later one has judged."""
        stages = {s.stage: s for s in self._stages.known}
        resolve, compiled = stages.get(Stage.RESOLVE), stages.get(Stage.AOT)
        if resolve is not None and resolve.outcome is Outcome.PASSED:
            stages[Stage.LINT] = dataclasses.replace(stages[Stage.LINT], not_checked=())
        if compiled is not None and compiled.outcome is not Outcome.NOT_RUN:
            plan = stages[Stage.PLAN]
            left_open = tuple(each for each in plan.not_checked if each != TEMPORARIES_UNKNOWN)
            stages[Stage.PLAN] = dataclasses.replace(plan, not_checked=left_open)
        return [*stages.values()]

    def close(self) -> None:
        """Ends the run's process."""
        if self._backend is not None:
            self._backend.close()
        if self._google is not None and self._led is not None:
            self._google.leave(self._led)

    def _on_own_lines(self, result: StageResult) -> StageResult:
        """Returns a stage with its findings on the user's lines; what a comment there silences is silenced."""
        before = set(result.findings)
        findings = on_own_lines(result.findings, self._read())
        moved = [f for f in findings if f not in before and f.severity is not Severity.ERROR]
        _, silenced = split_silenced(moved, (), self._spec.cwd)
        shown = tuple(finding for finding in findings if finding not in silenced)
        return dataclasses.replace(result, findings=shown, silenced=(*result.silenced, *silenced))

    def _run_timed(self, stage: Stage) -> StageResult:
        self._at_work = stage
        start = time.perf_counter()
        result = self._run(stage)
        self._seconds += time.perf_counter() - start
        result = self._on_own_lines(result)
        return _strict(result) if self._spec.settings.strict else result

    def _run(self, stage: Stage) -> StageResult:
        if stage is Stage.LINT:
            start = time.perf_counter()
            return lint_program(
                self._read(),
                start=start,
                run_if=self._run_if,
                on_slice=self._lint_on_slice,
                begins_run=self._zygote is not None,
            )
        from t5x_harness.google.server.settings import ServerError
        from t5x_harness.workers.errors import WorkerError

        start = time.perf_counter()
        try:
            result = self._with_what_google_said(self._open().stage(stage))
        except ServerError as error:
            finding = Finding(
                "RUN08", Severity.ERROR, stage, str(error), fix="or run without one: --gcs=off (pytest: --t5x-gcs=off)"
            )
            return StageResult(stage, Outcome.FAILED, (finding,), seconds=time.perf_counter() - start)
        except WorkerError as error:
            finding = Finding("RUN01", Severity.ERROR, stage, str(error), fix="see the end of the log")
            return StageResult(
                stage,
                Outcome.FAILED,
                findings=(finding,),
                seconds=time.perf_counter() - start,
                log_tail=error.log_tail,
            )
        if self.spec.settings.plan_golden is None or result.outcome is not Outcome.PASSED:
            return result
        if stage is Stage.AOT:
            from t5x_harness.plan.golden_numbers import check_golden_numbers

            return check_golden_numbers(self.spec, result)
        return self._against_golden(result) if stage is Stage.PLAN else result

    def _with_what_google_said(self, result: StageResult) -> StageResult:
        """Adds to a failed stage's log what the emulated Google Cloud has refused: clients may not have shown it."""
        if result.outcome is not Outcome.FAILED or self._google is None or self._led is None:
            return result
        said = self._google.said(self._led)
        return dataclasses.replace(result, log_tail=f"{result.log_tail}\n{said}".strip()) if said else result

    def _against_golden(self, plan: StageResult) -> StageResult:
        """Returns the plan stage, with what differs from the golden plan."""
        from t5x_harness.plan.golden_check import check_golden

        places = {str(self._workspace): "<run>", str(Path(self._read().t5x_parent or "").absolute()): "<t5x>"}
        stages = (*map(self.stage, self._stages.before(Stage.PLAN)), plan)
        return check_golden(RunResult(self.spec, stages, bindings=bound_values(self._read())), places)

    def _open(self) -> Backend:
        if self._backend is None:
            if self._zygote is None or self._workspace is None:
                raise ValueError("a pipeline without a worker and a workspace can only lint")
            from t5x_harness.runs.local import LocalBackend

            environment = self._google_environment()
            self._local = LocalBackend(
                self.spec,
                zygote=self._zygote,
                workspace=self._workspace,
                timeout=self._timeout,
                on_progress=self._on_progress,
                env={**(self._env or {}), **environment},
                needed=self._google.server_of(environment) if self._google is not None else None,
            )
            self._remote = self._promote(self.spec, self._local) if self._promote is not None else None
            self._backend = self._remote or self._local
        return self._backend

    def _google_environment(self) -> Mapping[str, str]:
        if self._google is None:
            return {}
        self._led = self._google.enter()
        return self._led

    def _read(self) -> GinProgram:
        if self._program is None:
            program = program_of(self._spec, t5x_parent=self._t5x_parent)
            self._program = leave_modules_open(program) if self._zygote is None else program
        return self._program


def _each_said_once(results: Sequence[StageResult]) -> list[StageResult]:
    """Stages in their order, without what a later one says, too: it is the same mistake, judged by more."""
    said: set[tuple[str, Location]] = set()
    left: list[StageResult] = []
    for result in reversed(results):
        findings = tuple(f for f in result.findings if f.location is None or (f.code, f.location) not in said)
        said.update((f.code, f.location) for f in result.findings if f.location is not None)
        left.append(dataclasses.replace(result, findings=findings))
    return left[::-1]


def _as_far_as_run(stages: Sequence[StageResult]) -> tuple[StageResult, ...]:
    """Returns the stages that were run; why others were not, and what was found in them, is left to the one before.

    One that proved nothing is kept if the run has nothing else to show: it has not passed then.
    """
    run: list[StageResult] = []
    in_vain = proved_nothing(stages)
    for stage in stages:
        if stage.outcome is not Outcome.NOT_RUN or stage is in_vain or not run:
            run.append(stage)
            continue
        *before, last = run
        open_ = tuple(why for why in stage.not_checked if why not in last.not_checked)
        findings = (*last.findings, *stage.findings)
        run = [*before, dataclasses.replace(last, not_checked=(*last.not_checked, *open_), findings=findings)]
    return tuple(stage for stage in run if stage.outcome is not Outcome.NOT_RUN or stage is in_vain)


def _strict(result: StageResult) -> StageResult:
    """Returns a stage whose warnings are errors."""
    findings = tuple(
        dataclasses.replace(finding, severity=Severity.ERROR) if finding.severity is Severity.WARNING else finding
        for finding in result.findings
    )
    strict = dataclasses.replace(result, findings=findings)
    return judged(strict) if strict.errors else strict
