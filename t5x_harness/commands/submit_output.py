"""The output of ``t5x-harness submit``: jobs as text and as JSON, before they are sent and after they have ended."""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from t5x_harness.buckets.folders import StorageError
from t5x_harness.findings.printable import printable, without_secrets
from t5x_harness.google.vertex.validation.judging import SpecVerdict
from t5x_harness.report.json import document, json_text
from t5x_harness.report.report import Report
from t5x_harness.report.table import preemption, verdicts
from t5x_harness.spec import RunResult, Stage
from t5x_harness.system.secrets import masked
from t5x_harness.vertex.batch import JobBatch
from t5x_harness.vertex.emulated import uses_emulated_google
from t5x_harness.vertex.errors import VertexError
from t5x_harness.vertex.job import T5XJob
from t5x_harness.vertex.launching import DuplicateError, LaunchedJob, RunEnd
from t5x_harness.vertex.metrics import EVALUATED, number_for_json
from t5x_harness.vertex.submitted import SubmittedJob
from t5x_harness.vertex.target import VertexTarget, placeholders_in
from t5x_harness.vertex.waiting import WaitError

_WIDTH = 120


class SubmitOutput:
    """The command's output: progress on standard error, and the outcome on standard output or in a file.

    Args:
      args: the parsed arguments, with the shared arguments for output.
      stream: the stream for the outcome, normally standard output.
    """

    def __init__(self, args: argparse.Namespace, stream: TextIO) -> None:
        self._stream = stream
        self._args = args
        self._file: Path | None = args.output
        self._is_json = args.format == "json"
        self._shows_text = not self._is_json or self._file is not None
        self._lines: list[str] = []
        self._document: dict[str, Any] = {"jobs": [], "sent": [], "notes": []}

    def job(self, job: T5XJob, verdict: SpecVerdict) -> None:
        """Shows a job that will be sent."""
        self._document["jobs"].append(as_values(job, verdict))
        self._show(as_text(job, verdict, spec=self._args.dry_run))

    def checks(self, results: Sequence[RunResult]) -> bool:
        """Shows the findings of lint and plan; returns whether they passed."""
        from t5x_harness.report.terminal import render

        report = Report(tuple(results))
        self._document["report"] = document(report)
        self._show(render(report, width=_WIDTH, notes=self._args.verbose).splitlines())
        for result in results:
            self._show(
                f"{result.spec.name}: {line}"
                for stage in result.stages
                if stage.stage is Stage.AOT
                for line in verdicts(stage)
            )
            self._show(f"{result.spec.name}: {line}" for line in preemption(result))
        return report.passed

    def note(self, text: str) -> None:
        """Shows a message about a job that was not sent, or about no particular job."""
        self._document["notes"].append(text)
        self.say(f"t5x-harness submit: {text}")

    def ended(self, launched: LaunchedJob, end: RunEnd) -> None:
        """Shows the outcome of a job."""
        self._document["sent"].append(end_as_values(launched, end))
        self._show(end_as_text(launched, end))

    def left(self, launched: LaunchedJob) -> None:
        """Shows a job that the command does not wait for."""
        self._document["sent"].append(end_as_values(launched, None))
        job = launched.submitted
        self._show(
            [
                f"{job.display_name}: sent; follow it with t5x-harness submit --attach={job.id}",
                f"  {job.page}",
                *(f"  {note}" for note in launched.notes),
            ]
        )

    def say(self, text: str) -> None:
        """Shows a line of progress."""
        print(printable(text), file=sys.stderr, flush=True)

    def close(self) -> None:
        """Writes the report for a program or to a file."""
        text = json_text(self._document) if self._is_json else "\n".join(self._lines)
        if self._file is not None:
            self._file.write_text(f"{text}\n", encoding="utf-8")
        elif self._is_json:
            print(text, file=self._stream, flush=True)

    def _show(self, lines: Iterable[str]) -> None:
        shown = [printable(line) for line in lines]
        self._lines += shown
        if self._shows_text:
            print("\n".join(shown), file=self._stream, flush=True)


class PrintedBatch:
    """Jobs that are submitted and followed; if one fails, a message says why, and the others continue.

    Ctrl-C inside its ``with`` block cancels all of them, and then ends their runs in experiments.

    Args:
      output: the output that shows the jobs.
      waits: whether jobs are followed to their ends.
    """

    def __init__(self, output: SubmitOutput, *, waits: bool) -> None:
        self._output = output
        self._waits = waits
        self._batch = JobBatch(self._on_sent)
        self._launched: list[LaunchedJob] = []
        self._all_well = True

    def __enter__(self) -> Self:
        self._batch.interrupts.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            if isinstance(error, KeyboardInterrupt):
                self._batch.cancel(
                    self._output.note,
                    cancelled=lambda job: f"cancelled: {job.name}",
                    refused=lambda job, why: f"NOT cancelled, and it may go on at cost: {why}. See {job.page}",
                    interrupted=lambda job: (
                        f"Ctrl-C cut short the cancelling of {job.name}. It may go on at cost: see {job.page}"
                    ),
                )
        finally:
            self._batch.interrupts.end()

    def launch(self, job: T5XJob, *, duplicate: bool) -> None:
        """Sends a job.

        Args:
          job: the job.
          duplicate: whether to send it even if another job does the same.
        """
        try:
            self._launched.append(self._batch.launch(job, duplicate=duplicate))
        except (DuplicateError, StorageError, VertexError) as error:
            self._fail(str(error))

    def attach(self, name: str, target: VertexTarget) -> None:
        """Adds a job that was sent earlier, to be followed.

        Raises:
          VertexError: there is no such job.
        """
        self._launched.append(self._batch.attach(name, target))

    def finish(self) -> int:
        """Follows the jobs to their ends if ``waits`` is set; returns 0 if all were sent and none failed, else 1."""
        for launched in self._launched:
            if self._waits:
                self._follow(launched)
            else:
                self._output.left(launched)
        return 0 if self._all_well else 1

    def _follow(self, launched: LaunchedJob) -> None:
        name = launched.submitted.display_name
        try:
            end = self._batch.follow(
                launched,
                on_state=lambda state: self._output.say(f"{name}: {state}"),
                on_log=lambda line: self._output.say(str(line)),
            )
        except (VertexError, WaitError) as error:
            self._fail(str(error))
        else:
            self._output.ended(launched, end)
            self._all_well = self._all_well and end.outcome.succeeded

    def _on_sent(self, job: SubmittedJob) -> None:
        hint = "; Ctrl-C cancels it" if self._waits else ""
        self._output.say(f"{job.display_name}: {job.name}{hint}\n  {job.page}")

    def _fail(self, reason: str) -> None:
        self._all_well = False
        self._output.note(reason)


def as_values(job: T5XJob, verdict: SpecVerdict) -> dict[str, Any]:
    """Returns a description of the job that will be sent, for other programs."""
    return {
        "name": job.name,
        "project": job.target.project,
        "location": job.target.location,
        "machine": str(job.machine),
        "slice": job.machine.slice.name if job.machine.slice else None,
        "chip_hours": job.chip_hours.total,
        "model_dir": job.model_dir,
        "args": list(job.args),
        "stage": job.stage,
        "staged": [{"name": file.name, "bytes": len(file.content)} for file in job.staged_files],
        "of_image": list(job.closure.of_image),
        "of_buckets": list(job.closure.of_buckets),
        "passed_over": list(job.closure.passed_over),
        "warnings": [str(warning) for warning in verdict.warnings],
        "spec": _plain(job.to_pb()),
    }


def as_text(job: T5XJob, verdict: SpecVerdict, *, spec: bool) -> Iterator[str]:
    """Yields the description of the job that will be sent, line by line, for people.

    Args:
      job: the job.
      verdict: the result of :func:`verdict_of`.
      spec: whether to also show the whole spec.
    """
    yield f"{job.name}: {job.run_mode} on {job.machine} in {job.target.location} of {job.target.project}"
    yield f"  chip-hours: {job.chip_hours}"
    yield f"  image: {job.target.image}"
    if missing := placeholders_in(job.target, lambda name: f"--{name}"):
        yield f"  {missing}"
    yield f"  writes to: {job.model_dir}"
    yield "  args:"
    yield from (f"    {argument}" for argument in job.args)
    yield f"  staged in {job.stage}:"
    yield from (f"    {file.name} ({len(file.content)} bytes)" for file in job.staged_files)
    for title, names in (
        ("the image has to have", job.closure.of_image),
        ("read where they are", job.closure.of_buckets),
        ("not staged", job.closure.passed_over),
        ("warnings", [str(warning) for warning in verdict.warnings]),
    ):
        if names:
            yield f"  {title}:"
            yield from (f"    {name}" for name in names)
    if spec:
        yield "  spec:"
        yield from (f"    {line}" for line in json.dumps(_plain(job.to_pb()), indent=2).splitlines())


def end_as_values(launched: LaunchedJob, end: RunEnd | None) -> dict[str, Any]:
    """Returns the outcome of a job that was sent, for other programs; ``end`` is None if it was not waited for."""
    job = launched.submitted
    values: dict[str, Any] = {
        "job": job.name,
        "display_name": job.display_name,
        "url": job.url or None,
        "model_dir": launched.model_dir,
        "experiment_run": launched.tracked.name if launched.tracked else None,
        "notes": list(launched.notes),
    }
    if end is not None:
        values |= {
            "state": end.outcome.state,
            "error": end.outcome.error,
            "devices": _devices(launched, end),
            "metrics": {
                name: {str(step): number_for_json(value) for step, value in steps.items()}
                for name, steps in end.metrics.values.items()
            },
            "notes": list(end.notes),
        }
    return values


def end_as_text(launched: LaunchedJob, end: RunEnd) -> Iterator[str]:
    """Yields the outcome for people, line by line, with the last evaluation metrics and the last loss."""
    yield f"{launched.submitted.display_name}: {end.outcome}"
    yield f"  {launched.submitted.name}"
    yield f"  wrote to: {launched.model_dir}"
    yield f"  devices: {_devices(launched, end)}"
    if end.ran_on.fell_back and launched.submitted.machine.is_tpu and not uses_emulated_google():
        message, fix = end.ran_on.no_tpu(launched.submitted.display_name, str(launched.submitted.machine))
        yield f"  warning: {message}"
        yield f"    fix: {fix}"
    shown = [n for n in sorted(end.metrics.values) if n.startswith(EVALUATED) or n == "train/loss"]
    for name in shown:
        yield f"  {name}: {end.metrics.last(name):g} at step {max(end.metrics.values[name])}"
    yield from (f"  not done: {note}" for note in end.notes)


def _devices(launched: LaunchedJob, end: RunEnd) -> str:
    return end.ran_on.about(tpu=launched.submitted.machine.is_tpu, emulated=uses_emulated_google())


def _plain(message: Any) -> dict[str, Any]:
    """Returns a message in the form of the REST API, with its secrets masked."""
    from google.protobuf.json_format import MessageToDict

    values: dict[str, Any] = MessageToDict(type(message).pb(message))
    for pool in values["jobSpec"]["workerPoolSpecs"]:
        for variable in pool["containerSpec"].get("env", ()):
            variable["value"] = masked(variable.get("name", ""), variable.get("value", ""))
    return without_secrets(values)
