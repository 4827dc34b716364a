"""Runs the stages of a promoted run: the stages before execution in a process here, all others as one CustomJob."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t5x_harness.aot.libtpu import LibtpuMissing, is_installed
from t5x_harness.buckets.addresses import GS, object_address
from t5x_harness.buckets.folders import Folder, StagedFile, StorageError
from t5x_harness.promotion.jobs import REFUSALS, EndedJob, JobNotSent, PromotedJobs
from t5x_harness.promotion.order import JobOrder
from t5x_harness.promotion.results import JobResults, read_results, stages_of_job
from t5x_harness.promotion.settings import NOT_SENT, UNSEEN
from t5x_harness.report.table import verdicts
from t5x_harness.spec import AotMode, Change, Changed, Finding, Hosts, Outcome, Reason, Severity, Stage, StageResult
from t5x_harness.vertex.arguments import RunMode
from t5x_harness.vertex.closure import unstaged_files
from t5x_harness.vertex.job import SPEC_LABEL, T5XJob
from t5x_harness.vertex.launching import LaunchedJob
from t5x_harness.vertex.metrics import MetricsError
from t5x_harness.vertex.submitted import SubmittedJob
from t5x_harness.workers.errors import WorkerError

if TYPE_CHECKING:
    from t5x_harness.runs.local import LocalExecutor
    from t5x_harness.runs.run import Run

_MODEL_DIR = "MODEL_DIR"
_STANDINS = "t5x-harness/standins"


class JobExecutor:
    """Runs the stages before the job here; the first stage that executes sends the job, which also covers later stages.

    Args:
      local: the executor that runs the stages before the job.
      order: the requirements for the job.
      jobs: a function that makes the object that sends and follows it.
      aot: how its programs are compiled beforehand; None for not at all.
      why_unseen: the reason, in words, that they are not compiled; empty if they are, or need not be.
    """

    def __init__(
        self,
        local: LocalExecutor,
        order: JobOrder,
        jobs: Callable[[], PromotedJobs],
        aot: AotMode | None = None,
        why_unseen: str = "",
    ) -> None:
        self._local = local
        self._order = order
        self._jobs = jobs
        # A TPU computes the numbers anyway, a job is not killed to see whether it goes on, and its hosts are its own.
        never = {"tpu_numerics": False, "cpu_isa": None, "resume": False, "preempt": None, "campaign": None}
        self.settings: Mapping[str, Any] = {**never, "hosts": Hosts.ONE, "aot": aot}
        self._why_unseen = why_unseen
        self._sent: _Sent | StageResult | None = None  # a result if the job was not sent
        self._executed: Mapping[Stage, StageResult] = {}
        self._found = JobResults("")

    def stage(self, run: Run, stage: Stage) -> StageResult:
        """Runs a stage; the first one that executes waits for the job."""
        if stage.executes:
            self._executed = self._executed or self._execute(run)
            return self._executed[stage]
        found = self._local.stage(run, stage)
        return self._with_unstaged(run, found) if stage is Stage.RESOLVE else found

    def submit(self, run: Run) -> None:
        """Sends the job without waiting for it; if it cannot be sent, the reason is the result of its stage."""
        if self._sent is not None:
            return
        started = time.monotonic()
        first = _executing(run)[0]
        try:
            self._sent = self._send(run, first)
        except JobNotSent:
            self._sent = StageResult(first, Outcome.NOT_RUN, not_checked=(NOT_SENT,))
        except (*REFUSALS, WorkerError) as error:
            finding = Finding("RUN08", Severity.ERROR, first, f"{first} was not sent as a job: {error}")
            self._sent = StageResult(first, Outcome.FAILED, (finding,), seconds=time.monotonic() - started)
        finally:
            self._local.close()  # its memory is more useful to other runs, and to the job if that runs here

    def written(self, run: Run) -> Mapping[str, Any]:
        """Returns the job's output."""
        found = self._found
        return {
            "steps": found.steps,
            "metrics": {**found.metrics, **found.evaluated},
            "checkpoints": found.checkpoints,
            "predictions": found.predictions,
            "operative_config": found.operative_config,
            "log": str(_log(run)),
            "model_dir": found.folder,
            "runtime": f"T5X of the image {self._order.target.image}",
        }

    def close(self) -> None:
        """Ends the process here. May be called again. The job is ended by :meth:`PromotedJobs.close`."""
        self._local.close()

    def _with_unstaged(self, run: Run, resolved: StageResult) -> StageResult:
        """Adds the files of this machine that the run reads and its job will not have."""
        try:
            closure = self._job(run, [], {"name": _MODEL_DIR, "address": ""}).closure
        except REFUSALS:  # sending the job reports it
            return resolved
        unstaged = unstaged_files(closure, run.outcome((resolved,)))
        doubts = (f"whether the job has {each}" for each in (*closure.passed_over, *unstaged))
        return dataclasses.replace(resolved, not_checked=(*resolved.not_checked, *doubts))

    def _execute(self, run: Run) -> Mapping[Stage, StageResult]:
        """Returns the results of all stages that execute, once the job has ended."""
        started = time.monotonic()
        self.submit(run)
        executing = _executing(run)
        if isinstance(self._sent, StageResult):
            return {stage: dataclasses.replace(self._sent, stage=stage) for stage in executing}
        assert self._sent is not None
        submitted = self._sent.job.submitted
        jobs, first = self._jobs(), executing[0]
        ended = jobs.follow(self._sent.job, _log(run), run.tell, stage=str(first))
        left_open = [*self._sent.not_checked]
        if self._why_unseen:
            left_open.append(f"whether its programs fit {self._order.machine}: {self._why_unseen}")
        try:
            self._found = read_results(Folder(self._sent.folder, self._order.target.project))
        except (MetricsError, StorageError, ValueError) as error:
            left_open.append(f"what the job wrote: {error}")
        results = stages_of_job(
            executing,
            ended,
            submitted,
            self._found,
            first_step=self._sent.first_step,
            earlier=self._sent.earlier,
            log=_log(run),
            tpu=self._order.machine if self._order.machine.is_tpu and not jobs.emulated else None,
        )
        done = dataclasses.replace(
            results[first],
            changes=self._sent.changes,
            facts=(*self._facts(run, submitted, ended), *results[first].facts),
            not_checked=(*results[first].not_checked, *left_open),
            seconds=round(time.monotonic() - started, 3),
        )
        return {**results, first: done}

    def _facts(self, run: Run, job: SubmittedJob, ended: EndedJob) -> Iterator[tuple[str, str]]:
        yield "job", job.name
        if job.url:
            yield "job_url", job.url
        yield "machine", str(self._order.machine)
        compiled = run.done.get(Stage.AOT)
        if compiled is not None and (words := "; ".join(verdicts(compiled))):
            yield "memory", words
        yield "state", str(ended.outcome) if ended.outcome else "unknown"
        yield "devices", ended.ran_on.about(tpu=self._order.machine.is_tpu, emulated=self._jobs().emulated)

    def _send(self, run: Run, first: Stage) -> _Sent | StageResult:
        order = self._order
        prepared = self._local.job(run, shrink=order.shrink, steps=order.steps, standins=order.standins)
        result = StageResult.from_json(prepared["prepared"])
        if result.outcome is not Outcome.PASSED:
            return dataclasses.replace(result, stage=first)
        standins, changes = self._moved_standins(
            run, tuple(c for c in result.changes if c.what is Changed.BINDING and c.why is not Reason.SANDBOX)
        )
        job = self._job(run, [f"{c.binding} = {c.after}" for c in changes], prepared["output"])
        earlier = self._earlier(prepared["output"])
        # The label identifies jobs that do the same. It leaves out anything that differs between two of them: their
        # output folders, and those of generated checkpoints, whose files differ each time they are written.
        container = job.container
        text = json.dumps(
            [container.target.image, dataclasses.asdict(container.machine), container.args, dict(container.env)]
        )
        for name, stable in {job.output: "<output>", **dict.fromkeys(standins, "<stand-in>")}.items():
            text = text.replace(name, stable)
        digest = hashlib.sha256(text.encode()).hexdigest()[:32]
        container = dataclasses.replace(container, labels={**container.labels, SPEC_LABEL: digest})
        sent = self._jobs().send(container, {job.stage: job.staged_files, **standins}, job)
        return _Sent(
            sent,
            _folder_of(prepared["output"], job, sent.submitted),
            changes,
            int(prepared["first_step"]),
            result.not_checked,
            earlier,
        )

    def _earlier(self, output: Mapping[str, str]) -> Mapping[str, int]:
        """Returns the files in the folder that the job will write into, if its config names one that others may use.

        Skips this if the job is only shown, or was sent before.
        """
        address = object_address(output["address"])
        if address is None or not self._jobs().sends:
            return {}
        try:
            return dict(Folder(address.rstrip("/"), self._order.target.project).names())
        except StorageError:  # the bucket does not exist yet, or sending the job reports its problem
            return {}

    def _job(self, run: Run, bindings: list[str], output: Mapping[str, str]) -> T5XJob:
        """Returns the job for the config with more bindings.

        Its output folder is bound if the config's is in no bucket.
        """
        job = T5XJob(
            run=dataclasses.replace(run.spec, bindings=(*run.spec.bindings, *bindings)),
            target=self._order.target,
            machine=self._order.machine,
            run_mode=RunMode(str(run.spec.mode)),
            timeout=self._order.timeout,
            name=self._order.name,
            env=self._order.env,
            labels=self._order.labels,
            options=self._order.options,
        )
        if output["address"] or output["name"] == _MODEL_DIR:
            return job
        given = (*job.run.bindings, f'{output["name"]} = "{job.output}/model"')
        return dataclasses.replace(job, run=dataclasses.replace(job.run, bindings=given))

    def _moved_standins(
        self, run: Run, changes: tuple[Change, ...]
    ) -> tuple[Mapping[str, list[StagedFile]], tuple[Change, ...]]:
        """Returns stand-ins for checkpoints as files for the bucket, and the changes with their paths there.

        Returns:
          The files by their ``gs://…`` folder, and the changes.
        """
        folder = run.workspace / "standin"
        staged: dict[str, list[StagedFile]] = {}
        moved = []
        for change in changes:
            if change.why is Reason.STANDIN and str(folder) in change.after and folder.is_dir():
                files = [
                    StagedFile(path.relative_to(folder).as_posix(), path.read_bytes())
                    for path in sorted(folder.rglob("*"))
                    if path.is_file()
                ]
                address = f"{GS}{self._order.target.bucket}/{_STANDINS}/{_digest(files)}"
                staged[address] = files
                moved.append(dataclasses.replace(change, after=change.after.replace(str(folder), address)))
            else:
                moved.append(change)
        return staged, tuple(moved)


def aot_mode(given: str | None, *, full_size: bool) -> tuple[AotMode | None, str]:
    """Returns how a job's programs are compiled before it is sent; or None, and the reason in words.

    Args:
      given: a mode, or ``off``; None if the user did not choose.
      full_size: whether the job runs at the sizes of its config. A shrunk run fits, and nothing is reported.
    """
    if given and given != UNSEEN:
        return AotMode(given), ""
    if not full_size:
        return None, ""
    if given:
        return None, "this was asked to be left out"
    return (AotMode.DEPTHS, "") if is_installed() else (None, str(LibtpuMissing()))


def _executing(run: Run) -> list[Stage]:
    return [stage for stage in run.stages if stage.executes]


def _log(run: Run) -> Path:
    return run.workspace / "job.log"


@dataclasses.dataclass(frozen=True)
class _Sent:
    """A job that has been sent.

    Attributes:
      job: the job as Vertex AI knows it, and its tracking.
      folder: the ``gs://…`` folder that it writes into.
      changes: its bindings in addition to the config.
      first_step: the step that training starts from.
      not_checked: the questions that its preparation left open.
      earlier: the contents of its folder before it was sent.
    """

    job: LaunchedJob
    folder: str
    changes: tuple[Change, ...]
    first_step: int
    not_checked: tuple[str, ...]
    earlier: Mapping[str, int]


def _folder_of(output: Mapping[str, str], job: T5XJob, sent: SubmittedJob) -> str:
    """Returns the folder of a job's results; a job that was sent before has its own."""
    address = object_address(output["address"])
    if address is not None:
        return address.rstrip("/")
    return job.model_dir.replace(job.output, sent.output) if output["name"] == _MODEL_DIR else f"{sent.output}/model"


def _digest(files: list[StagedFile]) -> str:
    everything = hashlib.sha256()
    for file in files:
        everything.update(f"{file.name}\0{len(file.content)}\0".encode() + file.content)
    return everything.hexdigest()[:16]
