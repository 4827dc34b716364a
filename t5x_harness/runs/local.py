"""The local backend: a run in a forked process of this machine, one stage at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t5x_harness.gin.reading import program_of
from t5x_harness.runs.stages import Stages, stages_of, standins_of, with_mode
from t5x_harness.spec import Finding, Location, Mode, Outcome, RunResult, RunSpec, Severity, Stage, StageResult
from t5x_harness.system.closing import Closing
from t5x_harness.system.decode import decode_fields
from t5x_harness.upstream.t5x import T5XLacks
from t5x_harness.workers.errors import RunCutOff, RunDied, RunRaised, RunTimedOut, WorkerError
from t5x_harness.workers.run import Needed, OnProgress, RunProcess

if TYPE_CHECKING:
    from t5x_harness.aot.compiling import Compiler
    from t5x_harness.aot.request import AotRun
    from t5x_harness.workers import InProcess, Zygote

FACTORY = "t5x_harness.execute.session:open_session"
PRELOAD = ("t5x_harness.execute.preload_inputs", "t5x_harness.execute.preload")
"""What a zygote for this backend imports before it forks, in this order."""

# Reading back what a run wrote takes moments; a run that hangs in it shall not hang pytest.
ARTIFACT_SECONDS = 120.0

_ROOM = 64 * 1024
"""Bytes below which a disk counts as full: what is left cannot hold a log."""


class LocalBackend(Closing):
    """Runs a spec's stages, each once and in order; a context manager.

    A stage that is asked for has those before it run first.  After a failed stage the following are not run.
    """

    def __init__(
        self,
        spec: RunSpec,
        *,
        zygote: Zygote | InProcess,
        workspace: Path,
        timeout: float | None = None,
        on_progress: Callable[[Mapping[str, Any]], None] | None = None,
        env: Mapping[str, str | None] | None = None,
        needed: Needed | None = None,
    ) -> None:
        """Takes the settings; the run's process starts with the first stage.

        Args:
          spec: what to run; its mode is seen from the config if it is None, and is that of training if it cannot be.
          zygote: starts the run's process.
          workspace: a folder for this run alone.
          timeout: seconds of wall time for each stage; None for no limit.
          on_progress: called with ``{"stage", "step", "of"}`` while a stage works.
          env: variables for the run's process, such as those of the compile cache.
          needed: what the run cannot go on without; its end is that of the stage in work.
        """
        self._spec = spec
        self._zygote = zygote
        self.workspace = Path(workspace).absolute()
        self._timeout = timeout
        self.on_progress: OnProgress | None = on_progress
        self._env: dict[str, str | None] = dict(env or {})
        self._needed = needed
        self._run: RunProcess | None = None
        self._broken_stage: Stage | None = None  # the stage that the run's process ended in

    @property
    def log(self) -> Path:
        """The log of the run's process."""
        return self.workspace / "run.log"

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages that this config has here, in order."""
        return self._stages.all

    def stage(self, stage: Stage) -> StageResult:
        """Returns the result of a stage, run now if it was not yet, after those before it.

        Raises:
          ValueError: a run of this mode has no such stage here.
        """
        return self._stages.result(stage)

    @functools.cached_property
    def _stages(self) -> Stages:
        found = with_mode(self._spec, lambda: program_of(self._spec))
        self._spec = dataclasses.replace(found, mode=found.mode or Mode.TRAIN)
        stages = stages_of(self._spec.mode, aot=self._spec.settings.aot)
        return Stages(self._spec, stages[1:], self._run_stage)  # lint needs no process

    def job(self, *, shrink: bool, steps: int | None, standins: bool) -> Mapping[str, Any]:
        """Returns what a job that makes this run is to bind; see :meth:`t5x_harness.execute.session.Session.job`.

        Raises:
          WorkerError: the run's process is gone.
        """
        self.stage(Stage.PLAN)
        run = self._open()
        found: Mapping[str, Any] = run.call("job", timeout=self._timeout, shrink=shrink, steps=steps, standins=standins)
        return found

    def result(self) -> RunResult:
        """Returns the outcome of the stages that were asked for so far, and what they wrote."""
        found = self._read_artifacts()
        results = self._stages.known
        return RunResult(
            spec=self._spec,
            stages=results,
            log=str(self.log),
            standins=standins_of(results),
            **decode_fields(RunResult, found),
        )

    def close(self) -> None:
        """Ends the run's process. May be called again."""
        if self._run is not None:
            self._run.close()

    def _open(self) -> RunProcess:
        if self._run is None:
            self._run = self._start(self.workspace, self._spec, self._env)
        return self._run

    def _start(self, workspace: Path, spec: RunSpec, env: Mapping[str, str | None]) -> RunProcess:
        workspace.mkdir(parents=True, exist_ok=True)
        cwd = os.path.abspath(self._spec.cwd)
        log = workspace / self.log.name
        run = self._zygote.start(
            FACTORY,
            {"spec": spec.to_json(), "workspace": str(workspace), "log": str(log)},
            log=log,
            cwd=cwd,
            env=env,
            python_path=(*(os.path.join(cwd, p) for p in self._spec.python_path), cwd),
        )
        run.needed = self._needed
        return run

    def _run_stage(self, stage: Stage) -> StageResult:
        started = time.monotonic()
        try:
            run = self._open()
            if stage is Stage.AOT:
                return self._compile_ahead()
            answer = run.call(stage.value, timeout=self._timeout, on_progress=self.on_progress)
        except WorkerError as error:
            self._broken_stage = stage
            return self._broken(stage, error, time.monotonic() - started)
        result = StageResult.from_json(answer)
        if result.outcome is Outcome.FAILED:
            result = dataclasses.replace(result, log_tail=_tail(self.log))
        return result

    def aot(self) -> tuple[AotRun, Compiler]:
        """Returns what the aot stage has to know of the run, which is planned, and what compiles its programs.

        Raises:
          WorkerError: the run's process is gone.
        """
        from t5x_harness.aot.compiling import Compiler
        from t5x_harness.aot.request import AotRun

        described = AotRun.from_json(self._open().call("programs", timeout=self._timeout))
        return described, Compiler(self._start_compiling, self.workspace / "aot", self._timeout, self.on_progress)

    def _compile_ahead(self) -> StageResult:
        from t5x_harness.aot.libtpu import why_not
        from t5x_harness.aot.stage import compile_run
        from t5x_harness.workers import InProcess

        if why := why_not(in_process=isinstance(self._zygote, InProcess)):
            missing = f"whether the programs fit {self._spec.slice}: {why}"
            return StageResult(Stage.AOT, Outcome.NOT_RUN, not_checked=(missing,))
        described, compiler = self.aot()
        return compile_run(described, self._spec, compiler)

    def _start_compiling(self, folder: Path, spec: RunSpec) -> RunProcess:
        """Starts a process that lowers and compiles one program, and lives no longer."""
        from t5x_harness.aot.libtpu import environment

        given = {**os.environ, **{name: value for name, value in self._env.items() if value is not None}}
        return self._start(folder, spec, {**self._env, **environment(given)})

    def _broken(self, stage: Stage, error: WorkerError, seconds: float) -> StageResult:
        """Returns a stage whose process died, hung, or refused to start."""
        location, see_log = None, f"see the end of its log, {self.log}"
        if isinstance(error, RunTimedOut):
            where = f"; it was at:\n{error.stack}" if error.stack else ""
            code, message = "RUN06", f"{stage} took longer than its limit of {self._timeout:g} s and was ended{where}"
            fix = "look where it hangs, or raise the limit"
        elif isinstance(error, RunCutOff):
            code, message = "RUN07", f"{stage} cannot go on: {error}"
            fix = "look for the out-of-memory killer in the kernel's log (dmesg); the next run does not depend on it"
        elif isinstance(error, RunDied):
            code, message, fix = "RUN07", f"the process of {stage} ended: {error}", see_log
        elif isinstance(error, RunRaised):
            began = error.method == stage.value
            code, message = "RUN08", f"{stage} {'stopped' if began else 'could not be started'}: {error.message}"
            fix = T5XLacks.FIX if error.type_name.endswith(T5XLacks.__name__) else see_log
            if error.at is not None:
                location = Location(*error.at)
                fix = "a module that T5X imports must not end the program: take the line out, or put it into a function"
        else:
            code, message, fix = (
                "RUN08",
                f"{stage} could not be started: {error}",
                error.fix or self._fix_of_import(error) or see_log,
            )
        if full := next((str(f) for f in (self.workspace, Path(tempfile.gettempdir())) if _is_full(f)), None):
            message = f"{message}; no space is left on the disk of {full}"
            fix = "make room there, or choose another disk: TMPDIR for the run's own files, --model_dir for checkpoints"
        finding = Finding(code, Severity.ERROR, stage, message, location=location, fix=fix)
        return StageResult(
            stage, Outcome.FAILED, (finding,), seconds=round(seconds, 3), log_tail=error.log_tail or _tail(self.log)
        )

    def _fix_of_import(self, error: WorkerError) -> str:
        """Returns what to do if an installed T5X cannot be imported, as a checkout whose requirements are missing."""
        from t5x_harness.runtime.choice import RuntimeChoiceError, runtime_of

        with contextlib.suppress(RuntimeChoiceError):
            runtime = runtime_of(self._spec)
            if runtime.kind == "installed" and runtime.location in error.log_tail:
                return f"install what {runtime.location} imports, or choose the embedded T5X: --t5x-runtime=embedded"
        return ""

    def _read_artifacts(self) -> Mapping[str, Any]:
        """Returns what the run wrote; only the folder, if its process is gone, as its failed stage says."""
        if self._run is None:
            return {}
        if self._broken_stage is None:
            try:
                found: Mapping[str, Any] = self._run.call("artifacts", timeout=ARTIFACT_SECONDS)
                return found
            except RunDied:
                self._broken_stage = self.stages[-1]
        return {"model_dir": self._spec.settings.model_dir or str(self.workspace / "model")}


def _is_full(folder: Path) -> bool:
    """Returns whether a disk has no room for a log."""
    return folder.is_dir() and shutil.disk_usage(folder).free < _ROOM


def _tail(log: Path) -> str:
    from t5x_harness.system.diagnosis import read_tail

    return read_tail(log) if log.exists() else ""
