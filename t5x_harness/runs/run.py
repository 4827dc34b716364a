"""A run from end to end: each stage runs once, only if no earlier one failed, and its user sees the results."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from t5x_harness.findings.silencing import split_silenced
from t5x_harness.findings.work import GOING_ON, REPEATED, judged, not_run, proved_nothing
from t5x_harness.gin.reading import bound_values, leave_modules_open, program_of
from t5x_harness.lint.classify import RunIf
from t5x_harness.lint.stage import lint_program, on_own_lines
from t5x_harness.runs.stages import stages_of
from t5x_harness.spec import Finding, Location, Outcome, Reason, RunResult, RunSpec, Severity, Stage, StageResult
from t5x_harness.system.closing import Closing

if TYPE_CHECKING:
    from t5x_harness.gin.program import GinProgram
    from t5x_harness.workers.run import OnProgress


class Executor(Protocol):
    """Runs the stages after lint; its only state is the process, or the job, that it runs them in.

    Attributes:
      settings: the run's settings that differ here.
    """

    settings: Mapping[str, Any]

    def stage(self, run: Run, stage: Stage) -> StageResult:
        """Runs a stage after the stages before it."""

    def submit(self, run: Run) -> None:
        """Begins the stages that execute, if they are a job, without waiting for them."""

    def written(self, run: Run) -> Mapping[str, Any]:
        """Returns the run's output, by the fields of :class:`~t5x_harness.spec.RunResult`."""

    def close(self) -> None:
        """Ends the process. May be called again."""


class Run(Closing):
    """A run and the results of its stages; a context manager that ends the run's process.

    It works in the caller's thread when a stage is requested. After :meth:`begin` it works ahead, in the thread
    that calls :meth:`work`, and callers wait for the stages that they request.

    Args:
      spec: the spec of the run; its mode is read from the config if it is None.
      executor: the executor of the stages after lint; None to lint only.
      workspace: a folder for the run's own files; lint needs none.
      on_progress: a function that is called with events such as ``{"stage": "train", "step": 3, "of": 8}``, in the
        working thread.
      t5x_parent: the folder with the package ``t5x`` in use, or that package; None looks for it.
      program: the config, if it has been read with that package; the executor has no settings then.
      run_if: the condition under which lint judges the files as a run, and not as a fragment.
      lint_on_slice: whether lint takes the slice into account, as plan does.

    Attributes:
      executor: the argument, as are ``workspace`` and ``on_progress``.
      done: the results of the stages so far.
    """

    def __init__(
        self,
        spec: RunSpec,
        executor: Executor | None,
        *,
        workspace: Path = Path(),
        on_progress: OnProgress | None = None,
        t5x_parent: str | Path | None = None,
        program: GinProgram | None = None,
        run_if: RunIf = RunIf.ALWAYS,
        lint_on_slice: bool = False,
    ) -> None:
        self.executor = executor
        self.workspace = workspace.absolute()
        self.on_progress = on_progress
        self.done: dict[Stage, StageResult] = {}
        self._asked_for = spec if executor is None else spec.with_settings(**executor.settings)
        self._t5x_parent = t5x_parent
        self._program = program
        self._run_if = run_if
        self._lint_on_slice = lint_on_slice
        self._seconds = 0.0
        self._last: Stage | None = None  # the last stage, in order, that somebody requested
        self._at_work: Stage | None = None
        self._written: Mapping[str, Any] | None = None  # once its process has ended
        self._result: RunResult | None = None  # until a further stage is requested
        # For a run that works ahead:
        self._ahead: Mapping[Stage, Future[StageResult]] = {}
        self._ended = Future[None]()
        self._enough = threading.Event()  # no further stage is wanted
        self._closed = False
        self._lock = threading.Lock()  # for the two attributes that follow
        self._waited_for: Stage | None = None
        self._event: Mapping[str, Any] = {}

    @functools.cached_property
    def config(self) -> GinProgram:
        """The run's gin files and bindings, read once."""
        program = self._program or program_of(self._asked_for, t5x_parent=self._t5x_parent)
        return leave_modules_open(program) if self.executor is None else program

    @functools.cached_property
    def spec(self) -> RunSpec:
        """The spec of the run, with the mode that the config shows if the run names none."""
        spec = self._asked_for
        return spec if spec.mode is not None else dataclasses.replace(spec, mode=self.config.mode)

    @functools.cached_property
    def _all(self) -> tuple[Stage, ...]:
        return stages_of(self.spec)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages of the run, in order; if it works ahead, those that it was begun with."""
        return tuple(self._ahead) or self._all

    @property
    def is_asked(self) -> bool:
        """Whether anyone wanted the result of a stage."""
        return self._last is not None

    def stage(self, stage: Stage) -> StageResult:
        """Returns the result of one stage, which runs now, after the earlier ones, unless it has run already.

        Raises:
          ValueError: the run has no such stage.
          Exception: it stopped a run that works ahead.
        """
        if stage not in self._all:
            stages = ", ".join(self._all)
            raise ValueError(f"a run in mode {self.spec.mode or 'unknown'} has no stage {stage}; it has {stages}")
        self._last = max(self._last or stage, stage, key=self._all.index)
        self._result = None
        if not self._ahead:
            return self._result_of(stage)
        with self._telling_of(stage):
            return self._ahead[stage].result()

    def finish(self) -> Sequence[StageResult]:
        """Runs all stages, and returns their results."""
        return [self.stage(stage) for stage in self.stages]

    def submit_early(self) -> None:
        """Sends the run's job, if it is one and every stage before it has passed, without waiting for it."""
        before = [stage for stage in self.stages if not stage.executes]
        executes = len(before) < len(self.stages)
        if self.executor and executes and all(self.stage(s).outcome is not Outcome.FAILED for s in before):
            self.executor.submit(self)

    def result(self, *, with_bindings: bool = True) -> RunResult:
        """Returns the outcome of the stages that were requested so far.

        If the run works ahead, no further stage begins, and this waits for the end of its process.

        Args:
          with_bindings: whether to list the config's bindings, which takes longer than to judge them.

        Raises:
          Exception: it stopped a run that works ahead.
        """
        if self._result is None:
            if self._ahead:
                self._enough.set()
                self._ended.result()
            bindings = bound_values(self.config) if self.done and with_bindings else ()
            self._result = self.outcome(reported(self._asked), bindings=bindings, **self._read_written())
        return self._result

    def known(self, *, asked: bool = False) -> RunResult:
        """Returns the outcome so far, while or after a stage is interrupted; nothing is waited for.

        Args:
          asked: whether to leave out the stages after the last one that was requested.
        """
        stages = self._asked if asked else settled(self._in_order())
        at_work = self._at_work
        if at_work is not None and at_work not in self.done and (not asked or self._is_asked(at_work)):
            stages.append(StageResult.interrupted(at_work))
        return self.outcome(stages)

    def outcome(self, stages: Sequence[StageResult], **fields: Any) -> RunResult:
        """Makes the run's result of these stages.

        Args:
          stages: the stages that it lists.
          **fields: further fields of the result.
        """
        changes = (change for result in self._in_order() for change in result.changes)
        standins = tuple(f"{c.binding}: {c.before}" for c in changes if c.why is Reason.STANDIN)
        return RunResult(self.spec, tuple(stages), standins=standins, seconds=self._seconds, **fields)

    def cut_off(self, why: str) -> None:
        """Ends the run in the middle of the stage that is waited for, which fails, and leaves out the later ones.

        Args:
          why: the reason, such as a time limit of pytest's own.
        """
        assert self._last is not None
        self.close()
        self._ahead, self._written, self._result = {}, {}, None
        order = self._all.index
        stage = min(next((each for each in self._all if each not in self.done), self._last), self._last, key=order)
        self.done = {each: result for each, result in self.done.items() if order(each) < order(stage)}
        fix = "raise that limit, or let --t5x-timeout end stages, which says where one hangs"
        finding = Finding("RUN06", Severity.ERROR, stage, f"{stage} was ended from outside: {why}", fix=fix)
        self.done[stage] = judged(StageResult(stage, Outcome.NOT_RUN, (finding,)))

    def close(self) -> None:
        """Kills the run's process if it is still working; does not wait for a thread. May be called again."""
        self._closed = True
        self._enough.set()
        if self.executor is not None:
            self.executor.close()

    def begin(self, stages: Sequence[Stage]) -> None:
        """Makes the run work ahead, and lints it at once.

        Python 3.11.7 counts the depth of syntax trees that several threads build at once together, and ends them with a
        SystemError. So they are built in one thread, the caller's.

        Args:
          stages: the stages to run.
        """
        self._ahead = {stage: Future() for stage in sorted(stages, key=self._all.index)}
        with contextlib.suppress(Exception):  # raised again when the result is requested
            self._result_of(Stage.LINT)

    def work(self) -> None:
        """Runs the stages that it was begun with in the caller's thread, and ends its process; no effect if closed."""
        if self._closed:
            return
        ahead = self._ahead
        try:
            with self:
                for stage, future in ahead.items():
                    if self._enough.is_set():
                        break
                    future.set_result(self._result_of(stage))
                self._written = self._read_written()
            self._ended.set_result(None)
        except BaseException as error:  # raised when the results are requested
            futures: tuple[Future[Any], ...] = (*ahead.values(), self._ended)
            for future in futures:
                if not future.done():
                    future.set_exception(error)

    def tell(self, event: Mapping[str, Any]) -> None:
        """Takes an event of the run's progress. A run that works ahead reports only the stage that is waited for."""
        with self._lock:
            self._event = event
            self._pass_on()

    @contextlib.contextmanager
    def _telling_of(self, stage: Stage) -> Iterator[None]:
        with self._lock:
            self._waited_for = stage
            self._pass_on()
        try:
            yield
        finally:
            with self._lock:  # afterwards, only the caller's thread uses the receiver
                self._waited_for = None

    def _pass_on(self) -> None:
        wanted = not self._ahead or (self._waited_for is not None and self._event.get("stage") == self._waited_for)
        if self.on_progress is not None and wanted and not self._closed:
            self.on_progress(self._event)

    def _result_of(self, stage: Stage) -> StageResult:
        if stage not in self.done:
            before = self._all[: self._all.index(stage)]
            failed = next((each for each in before if self._result_of(each).outcome is Outcome.FAILED), None)
            if failed is not None:
                made = not_run(StageResult(stage, Outcome.NOT_RUN), f"{failed} failed")
            else:
                self._at_work, start = stage, time.perf_counter()
                made = self._execute(stage)
                self._seconds += time.perf_counter() - start
                made = for_its_user(made, self.spec, self.config)
            self.done.setdefault(stage, made)  # it may have been cut off in the meantime
        return self.done[stage]

    def _execute(self, stage: Stage) -> StageResult:
        if stage is Stage.LINT:
            begins_run = self.executor is not None
            return lint_program(self.config, run_if=self._run_if, on_slice=self._lint_on_slice, begins_run=begins_run)
        if self.executor is None:
            raise ValueError("a run without an executor can only lint")
        result = self.executor.stage(self, stage)
        if self.spec.settings.plan_golden is None or result.outcome is not Outcome.PASSED:
            return result
        if stage is Stage.PLAN:
            from t5x_harness.plan.golden import check_golden

            places = {str(self.workspace): "<run>", str(Path(self.config.t5x_parent or "").absolute()): "<t5x>"}
            return check_golden(self.outcome((*self._in_order(), result), bindings=bound_values(self.config)), places)
        if stage is Stage.AOT:
            from t5x_harness.plan.golden import check_golden_numbers

            return check_golden_numbers(self.spec, result)
        return result

    def _read_written(self) -> Mapping[str, Any]:
        if self._written is not None:
            return self._written
        return self.executor.written(self) if self.executor is not None else {}

    def _in_order(self) -> list[StageResult]:
        return [self.done[stage] for stage in self._all if stage in self.done]

    @property
    def _asked(self) -> list[StageResult]:
        return settled([result for result in self._in_order() if self._is_asked(result.stage)])

    def _is_asked(self, stage: Stage) -> bool:
        return self._last is not None and self._all.index(stage) <= self._all.index(self._last)


def for_its_user(result: StageResult, spec: RunSpec, config: GinProgram) -> StageResult:
    """Moves a stage's findings to the user's own lines, and applies the user's comments there and ``--strict``."""
    before = set(result.findings)
    findings = on_own_lines(result.findings, config)
    moved = [f for f in findings if f not in before and f.severity is not Severity.ERROR]
    _, silenced = split_silenced(moved, (), spec.cwd)
    shown = tuple(finding for finding in findings if finding not in silenced)
    result = dataclasses.replace(result, findings=shown, silenced=(*result.silenced, *silenced))
    if not spec.settings.strict:
        return result
    errors = (dataclasses.replace(f, severity=Severity.ERROR) if f.severity is Severity.WARNING else f for f in shown)
    result = dataclasses.replace(result, findings=tuple(errors))
    return judged(result) if result.errors else result


def settled(results: Sequence[StageResult]) -> list[StageResult]:
    """Returns the stages without the doubts of one stage that a later one has settled."""
    stages = {result.stage: result for result in results}
    resolve, compiled = stages.get(Stage.RESOLVE), stages.get(Stage.AOT)
    if Stage.LINT in stages and resolve is not None and resolve.outcome is Outcome.PASSED:
        stages[Stage.LINT] = dataclasses.replace(stages[Stage.LINT], not_checked=())
    if compiled is not None and compiled.outcome is not Outcome.NOT_RUN:
        from t5x_harness.plan.arrays import TEMPORARIES_UNKNOWN

        plan = stages[Stage.PLAN]
        left_open = tuple(each for each in plan.not_checked if each != TEMPORARIES_UNKNOWN)
        stages[Stage.PLAN] = dataclasses.replace(plan, not_checked=left_open)
    inferred, resumed = stages.get(Stage.INFER), stages.get(Stage.RESUME)
    if inferred is not None and resumed is not None and any(name == REPEATED for name, _ in resumed.facts):
        left_open = tuple(each for each in inferred.not_checked if each != GOING_ON)
        stages[Stage.INFER] = dataclasses.replace(inferred, not_checked=left_open)
    return [*stages.values()]


def reported(results: Sequence[StageResult]) -> tuple[StageResult, ...]:
    """Returns the stages of a run as its result lists them.

    A mistake that several stages found is reported by the last of them. Stages that a failure left out are listed;
    stages that a job does not have, or was not sent for, are not part of the run.
    """
    said: set[tuple[str, Location]] = set()
    once: list[StageResult] = []
    for result in reversed(results):
        findings = tuple(f for f in result.findings if f.location is None or (f.code, f.location) not in said)
        said.update((f.code, f.location) for f in result.findings if f.location is not None)
        once.insert(0, dataclasses.replace(result, findings=findings))
    return tuple(once) if any(stage.outcome is Outcome.FAILED for stage in once) else _as_far_as_run(once)


def _as_far_as_run(stages: Sequence[StageResult]) -> tuple[StageResult, ...]:
    """Returns the stages that were run; the stage before one that was not run takes over its reasons and findings.

    A stage that proved nothing is kept if the run has nothing else to show, which then has not passed.
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
