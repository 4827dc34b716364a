"""Runs stages here, in a fork of a process that has imported the stack; if it dies or hangs, the stage fails."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t5x_harness.google.server.settings import ServerError
from t5x_harness.pods.stage import of_pod
from t5x_harness.runs.model_dirs import claim_model_dir
from t5x_harness.runtime.choice import RuntimeChoiceError, runtime_of
from t5x_harness.slices.slice import get_slice
from t5x_harness.spec import (
    Fault,
    Finding,
    Hosts,
    Location,
    Mode,
    Moment,
    Outcome,
    RunResult,
    RunSpec,
    Severity,
    Stage,
    StageResult,
)
from t5x_harness.symptoms.log_lines import text_lines
from t5x_harness.symptoms.recognize import Symptom, recognize
from t5x_harness.system.decode import decode_fields
from t5x_harness.system.diagnosis import read_tail
from t5x_harness.upstream.t5x import T5XLacks
from t5x_harness.workers.errors import RunCutOff, RunDied, RunRaised, RunTimedOut, WorkerError
from t5x_harness.workers.in_process import InProcess
from t5x_harness.workers.run import RunProcess
from t5x_harness.workers.zygote import Zygote

if TYPE_CHECKING:
    from t5x_harness.aot.compiling import Compiler
    from t5x_harness.aot.request import AotRun
    from t5x_harness.google.pool import GooglePool
    from t5x_harness.resume.restart import Restart
    from t5x_harness.runs.run import Run

FACTORY = "t5x_harness.execute.process:open_run"
_COMPILING = "t5x_harness.execute.process:ProgramProcess"

_LOG = "run.log"

# Reading back a run's output takes moments; a run that hangs in it must not hang pytest.
_ARTIFACT_SECONDS = 120.0

_ROOM = 64 * 1024
"""The free bytes below which a disk counts as full, because a log does not fit."""


class LocalExecutor:
    """Runs the stages of one run in a process that starts with the first of them.

    Args:
      zygote: the object that starts the process, such as a :class:`t5x_harness.workers.zygote.Zygote`.
      timeout: the seconds of wall time that one stage may take; None for no limit.
      env: variables for the process; None removes one.
      google: the emulated Google Cloud that the process uses; None for none.
      claims: whether the run's ``model_dir`` must be empty, and is kept from other runs.
    """

    settings: Mapping[str, Any] = {}  # a run here changes no settings

    def __init__(
        self,
        zygote: Zygote | InProcess,
        *,
        timeout: float | None = None,
        env: Mapping[str, str | None] | None = None,
        google: GooglePool | None = None,
        claims: bool = False,
    ) -> None:
        self._zygote = zygote
        self._timeout = timeout
        self._env = dict(env or {})
        self._google = google
        self._claims = claims
        self._process: RunProcess | None = None
        self._is_broken = False  # a stage ended the process, or kept it from starting
        self._google_env: Mapping[str, str] | None = None  # the variables with which the process uses it
        self._held = contextlib.ExitStack()
        self._restart: Restart | None = None

    def stage(self, run: Run, stage: Stage) -> StageResult:
        """Runs a stage; anything that ends the process is a failure of the stage."""
        started = time.monotonic()
        try:
            process = self._opened(run)
            if stage is Stage.AOT:  # in processes other than the run's own
                return self._compile_ahead(run)
            if stage is Stage.RESUME:
                return self._resume(run)
            if Stage.RESUME in run.stages and stage.value == (mode := _repeated_mode(run.spec)):
                self._begin_restart(run, process, mode)
            answer = process.call(stage.value, timeout=self._timeout, on_progress=run.tell)
        except (WorkerError, ServerError) as error:
            self._is_broken = True
            broken = self._broken(run, stage, error)
            return self._with_google_log(dataclasses.replace(broken, seconds=round(time.monotonic() - started, 3)))
        result = StageResult.from_json(answer)
        if run.spec.settings.hosts is Hosts.EMULATED:
            result = of_pod(result, run.spec, run.workspace)
        if result.outcome is not Outcome.FAILED:
            return result
        return self._with_google_log(dataclasses.replace(result, log_tail=_tail_of(run.workspace / _LOG)))

    def submit(self, run: Run) -> None:
        """Does nothing, because no stage is a job."""

    def job(self, run: Run, *, shrink: bool, steps: int | None, standins: bool) -> Mapping[str, Any]:
        """Returns the bindings of a job for this planned run; see :func:`t5x_harness.execute.process.job`.

        Raises:
          WorkerError: the run's process is gone.
        """
        process = self._opened(run)
        found: Mapping[str, Any] = process.call(
            "job", timeout=self._timeout, shrink=shrink, steps=steps, standins=standins
        )
        return found

    def aot(self, run: Run) -> tuple[AotRun, Compiler]:
        """Returns the programs that a planned run compiles, and the compiler for a slice, which may be another one.

        Raises:
          WorkerError: the run's process is gone.
        """
        from t5x_harness.aot.compiling import Compiler
        from t5x_harness.aot.libtpu import environment
        from t5x_harness.aot.request import AotRun

        def start(folder: Path, spec: RunSpec) -> RunProcess:
            """Starts a process that lowers and compiles one program, and then ends."""
            given = {**os.environ, **{name: value for name, value in self._env.items() if value is not None}}
            return self._start(_COMPILING, folder, spec, environment(given))

        described = AotRun.from_json(self._opened(run).call("programs", timeout=self._timeout))
        return described, Compiler(start, run.workspace / "aot", self._timeout, run.tell)

    def written(self, run: Run) -> Mapping[str, Any]:
        """Returns the run's output; only the folder if its process is gone, which its failed stage reports."""
        if self._process is None:
            return {"log": str(run.workspace / _LOG)} if self._is_broken else {}
        found: Mapping[str, Any] = {"model_dir": run.spec.settings.model_dir or str(run.workspace / "model")}
        if not self._is_broken:
            try:
                found = self._process.call("artifacts", timeout=_ARTIFACT_SECONDS)
            except RunDied:
                self._is_broken = True
        return {"log": str(run.workspace / _LOG), **decode_fields(RunResult, found)}

    def close(self) -> None:
        """Ends the run's processes. May be called again."""
        if self._restart is not None:
            self._restart.close()
        if self._process is not None:
            self._process.close()
        self._held.close()

    def _opened(self, run: Run) -> RunProcess:
        if self._process is None:
            if self._claims:
                self._held.enter_context(claim_model_dir(run.spec))
            if self._google is not None:
                self._google_env = self._google.enter()
                self._held.callback(self._google.leave, self._google_env)
                self._env |= self._google_env
            self._process = self._start(FACTORY, run.workspace, run.spec, {})
            if self._google is not None and self._google_env is not None:
                self._process.needed = self._google.server_of(self._google_env)
        return self._process

    def _start(
        self, factory: str, workspace: Path, spec: RunSpec, env: Mapping[str, str | None], **argument: Any
    ) -> RunProcess:
        workspace.mkdir(parents=True, exist_ok=True)
        cwd = os.path.abspath(spec.cwd)

        def start(more: Mapping[str, str], log: Path) -> RunProcess:
            return self._zygote.start(
                factory,
                {"spec": spec.to_json(), "workspace": str(workspace), "log": str(log), **argument},
                log=log,
                cwd=cwd,
                env={**self._env, **env, **more},
                python_path=(*(os.path.join(cwd, p) for p in spec.python_path), cwd),
            )

        if spec.settings.hosts is Hosts.ONE or factory == _COMPILING:
            return start({}, workspace / _LOG)
        from t5x_harness.pods.start import PodRefused, start_pod

        if isinstance(self._zygote, InProcess):
            raise PodRefused("the hosts of a pod are processes, and there is one", fix="leave out --in-process")
        return start_pod(get_slice(spec.slice), workspace / _LOG, start)

    def _compile_ahead(self, run: Run) -> StageResult:
        """Runs the stage aot, in which each program of the run is compiled in a separate process."""
        from t5x_harness.aot.libtpu import why_not
        from t5x_harness.aot.stage import compile_run

        if why := why_not(in_process=isinstance(self._zygote, InProcess)):
            missing = f"whether the programs fit {run.spec.slice}: {why}"
            return StageResult(Stage.AOT, Outcome.NOT_RUN, not_checked=(missing,))
        described, compiler = self.aot(run)
        return compile_run(described, run.spec, compiler)

    def _begin_restart(self, run: Run, process: RunProcess, mode: Mode) -> None:
        """Begins to end and restart what the run does, in processes of its own beside the stages from this one on."""
        from t5x_harness.resume.campaign import draw
        from t5x_harness.resume.repeater import Repeatable, Repeater
        from t5x_harness.resume.restart import MOMENTS, Restart

        if isinstance(self._zygote, InProcess):
            return
        with contextlib.suppress(RunRaised):  # it cannot be prepared, which train reports
            training = Repeatable.from_json(process.call("repeatable", timeout=self._timeout, mode=mode.value))

            def start(factory: str, folder: Path, spec: RunSpec, **argument: Any) -> RunProcess:
                return self._start(factory, folder, spec, {}, **argument)

            repeater = Repeater(run.spec, training, start, run.workspace, self._timeout)
            wanted = run.spec.settings
            fault = Fault.from_text(wanted.preempt) if wanted.preempt else Fault()
            if fault.during is Moment.STEP:  # the default
                fault = dataclasses.replace(fault, during=MOMENTS[mode][0])
            faults = [fault]
            if wanted.campaign is not None:
                faults = draw(wanted.campaign, wanted.times, training)
            self._restart = Restart(repeater, faults)

    def _resume(self, run: Run) -> StageResult:
        """Runs the stage resume, which compares the restarted training with the run's own."""
        from t5x_harness.resume.stage import compare_run

        if self._restart is None:
            why = "how training goes on: a process has to be killed for that, and --in-process leaves only this one"
            return StageResult(Stage.RESUME, Outcome.NOT_RUN, not_checked=(why,))
        run.tell({"stage": Stage.RESUME.value})

        def tell(number: int, outcome: str) -> None:
            """Reports the result of one fault of a campaign."""
            of = len(restart.faults)
            run.tell({"stage": Stage.RESUME.value, "step": number, "of": of, "note": outcome})

        restart = self._restart
        written = self._opened(run).call("artifacts", timeout=_ARTIFACT_SECONDS)
        return compare_run(run.spec, restart, decode_fields(RunResult, written)["metrics"], tell)

    def _broken(self, run: Run, stage: Stage, error: WorkerError | ServerError) -> StageResult:
        """Makes the result of a stage that the run's process did not finish."""
        log = run.workspace / _LOG
        see_log = f"see the end of its log, {log}"
        finding = _finding(stage, error, self._timeout, see_log)
        if isinstance(error, RunTimedOut) and (why := _why_orbax_waits(error, log)):
            message = f"{stage} waited until its limit of {self._timeout:g} s and was ended: {why.message}"
            finding = dataclasses.replace(finding, code=why.code, message=message, fix=why.fix)
        if not isinstance(error, WorkerError):
            return StageResult(stage, Outcome.FAILED, (finding,))
        if finding.fix is None:
            finding = dataclasses.replace(finding, fix=error.fix or _fix_of_import(run.spec, error) or see_log)
        folders = (folder for folder in (log.parent, Path(tempfile.gettempdir())) if folder.is_dir())
        if full := [folder for folder in folders if shutil.disk_usage(folder).free < _ROOM]:
            message = f"{finding.message}; no space is left on the disk of {full[0]}"
            fix = "make room there, or choose another disk: TMPDIR for the run's own files, --model_dir for checkpoints"
            finding = dataclasses.replace(finding, message=message, fix=fix)
        return StageResult(stage, Outcome.FAILED, (finding,), log_tail=error.log_tail or _tail_of(log))

    def _with_google_log(self, failed: StageResult) -> StageResult:
        """Adds the emulated Google Cloud's refusals to a failed stage's log, because clients may have hidden them."""
        if self._google is None or self._google_env is None:
            return failed
        said = self._google.said(self._google_env)
        return dataclasses.replace(failed, log_tail=f"{failed.log_tail}\n{said}".strip()) if said else failed


def _repeated_mode(spec: RunSpec) -> Mode | None:
    """Returns what the stage resume repeats: what the config does, or the inference with what it trains."""
    fault = spec.settings.preempt
    return Mode.INFER if fault and Fault.from_text(fault).during is Moment.INFER else spec.mode


def _tail_of(log: Path) -> str:
    """Returns the end of a log, which may not have been written."""
    return read_tail(log) if log.exists() else ""


def _finding(stage: Stage, error: WorkerError | ServerError, timeout: float | None, see_log: str) -> Finding:
    location, fix = None, None
    match error:
        case WorkerError(code=str(code)) if code:
            message = f"{stage} ended: {error}" if isinstance(error, RunDied) else str(error)
        case ServerError():
            code, message, fix = "RUN08", str(error), "or run without one: --gcs=off (pytest: --t5x-gcs=off)"
        case RunTimedOut():
            where = f"; it was at:\n{error.stack}" if error.stack else ""
            code, message = "RUN06", f"{stage} took longer than its limit of {timeout:g} s and was ended{where}"
            fix = "look where it hangs, or raise the limit"
        case RunCutOff():
            code, message = "RUN07", f"{stage} cannot go on: {error}"
            fix = "look for the out-of-memory killer in the kernel's log (dmesg); the next run does not depend on it"
        case RunDied():
            code, message, fix = "RUN07", f"the process of {stage} ended: {error}", see_log
        case RunRaised():
            how = "stopped" if error.method == stage.value else "could not be started"
            code, message = "RUN08", f"{stage} {how}: {error.message}"
            fix = T5XLacks.FIX if error.type_name.endswith(T5XLacks.__name__) else see_log
            if error.at is not None:
                location = Location(*error.at)
                fix = "a module that T5X imports must not end the program: take the line out, or put it into a function"
        case _:
            code, message = "RUN08", f"{stage} could not be started: {error}"
    return Finding(code, Severity.ERROR, stage, message, location=location, fix=fix)


def _why_orbax_waits(error: RunTimedOut, log: Path) -> Symptom | None:
    """Returns what a run died of that waited in orbax for a thread that has failed; None if its log has no such thread.

    orbax logs the error of that thread, and goes on waiting for it.
    """
    if "/orbax/" not in error.stack or not log.exists():
        return None
    with log.open("rb") as stream:
        return next((symptom for symptom in recognize(text_lines(stream)) if symptom.code == "CKP34"), None)


def _fix_of_import(spec: RunSpec, error: WorkerError) -> str:
    """Returns the fix for an installed T5X that cannot be imported, such as a checkout without its requirements."""
    with contextlib.suppress(RuntimeChoiceError):
        runtime = runtime_of(spec)
        if runtime.kind == "installed" and runtime.location in error.log_tail:
            return f"install what {runtime.location} imports, or choose the embedded T5X: --t5x-runtime=embedded"
    return ""
