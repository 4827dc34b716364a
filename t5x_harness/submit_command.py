"""``t5x-harness submit``: runs as Vertex AI jobs, after everything that can be known of them here was checked."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from t5x_harness.google.vertex.validation import Verdict
from t5x_harness.report.report import Report
from t5x_harness.spec import Mode, RunResult, RunSpec, Stage
from t5x_harness.submit_arguments import add_arguments, goes_to_private_google, jobs_of, target_of
from t5x_harness.vertex.chip_hours import ChipHoursError
from t5x_harness.vertex.describing import as_text, as_values, end_as_text, end_as_values, refusals, verdict_of
from t5x_harness.vertex.emulated import private_google
from t5x_harness.vertex.errors import VertexError
from t5x_harness.vertex.job import T5XJob
from t5x_harness.vertex.launching import DuplicateError, LaunchedJob, RunEnd
from t5x_harness.vertex.run_mode import RunMode
from t5x_harness.vertex.storage import Folder, StorageError
from t5x_harness.vertex.target import VertexTarget
from t5x_harness.vertex.waiting import WaitError

__all__ = ["add_arguments", "run"]

_WIDTH = 120


def run(args: argparse.Namespace) -> int:
    """Checks, sends and follows jobs.

    Returns:
      0 where all is well, 1 where a job was refused or failed.

    Raises:
      UsageError: the arguments make no sense; nothing was sent.
      ProjectError: pyproject.toml has a mistake in it.
    """
    from t5x_harness.google.serving.settings import ServerError

    emulated = goes_to_private_google(args)
    target = target_of(args, emulated)
    output = _Output(args, sys.stdout)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # Google's SDK tells there what it does
            if args.attach:
                with _google(args, emulated):
                    return _follow([LaunchedJob.attach(args.attach, target)], output)
            return _Submission(args, jobs_of(args, target), emulated, output).run()
    except (ChipHoursError, DuplicateError, ServerError, StorageError, VertexError, WaitError) as error:
        print(f"t5x-harness submit: {error}", file=sys.stderr)
        return 1


class _Submission:
    """The way of some jobs from checks to their ends."""

    def __init__(self, args: argparse.Namespace, jobs: Sequence[T5XJob], emulated: bool, output: _Output) -> None:
        self._args = args
        self._jobs = jobs
        self._emulated = emulated
        self._output = output

    def run(self) -> int:
        verdicts = [verdict_of(job) for job in self._jobs]
        refused = [text for job, verdict in zip(self._jobs, verdicts, strict=True) if (text := refusals(job, verdict))]
        if refused:
            raise VertexError("\n".join(refused))
        for job in self._jobs:
            job.chip_hours.require(self._args.tpu_max_chip_hours)
        for job, verdict in zip(self._jobs, verdicts, strict=True):
            self._output.job(job, verdict)
        if not self._passes_checks():
            self._output.note("nothing was sent: mend what was found, or send it as it is with --no-check")
            self._output.close()
            return 1
        if self._args.dry_run:
            self._output.note("nothing was sent: --dry-run")
            self._output.close()
            return 0
        with _google(self._args, self._emulated):
            if self._emulated:
                _make_bucket(self._jobs[0].target)
            launched = [LaunchedJob.launch(job, duplicate=self._args.duplicate) for job in self._jobs]
            return _follow(launched, self._output)

    def _passes_checks(self) -> bool:
        """Lint and plan; whether they found no error."""
        if self._args.no_check:
            self._output.note("not checked: lint and plan (--no-check)")
            return True
        plannable = [job for job in self._jobs if job.run_mode is not RunMode.PRECOMPILE and job.machine.slice]
        for job in self._jobs:
            if job not in plannable:
                why = "precompile" if job.run_mode is RunMode.PRECOMPILE else f"{job.machine} is no TPU slice"
                self._output.note(f"not checked: lint and plan of {job.name} ({why})")
        specs = [dataclasses.replace(job.run, mode=Mode(job.run_mode.value), golden=None) for job in plannable]
        return self._output.checks(_checked(specs)) if specs else True


def _checked(specs: Sequence[RunSpec]) -> list[RunResult]:
    from t5x_harness.pipeline import RunOptions, run_specs

    workspace = Path(tempfile.mkdtemp(prefix="t5x-harness-"))
    try:
        return list(run_specs(specs, RunOptions(workspace, Stage.PLAN, timeout=600.0)))
    finally:
        shutil.rmtree(workspace, ignore_errors=True)


def _follow(launched: Sequence[LaunchedJob], output: _Output) -> int:
    """Waits for jobs, if that is wanted, and says what came of them."""
    ends: list[RunEnd] = []
    try:
        for job in launched:
            output.sent(job)
            end = job.follow(on_state=output.state(job), on_log=output.log) if output.waits else None
            output.end(job, end)
            if end is not None:
                ends.append(end)
    except KeyboardInterrupt:
        for job in launched[len(ends) :]:
            _cancel(job, output)
        raise
    finally:
        output.close()
    return 0 if all(end.outcome.succeeded for end in ends) else 1


def _cancel(job: LaunchedJob, output: _Output) -> None:
    try:
        job.cancel()
    except VertexError as error:
        output.note(f"NOT cancelled, it may go on at cost: {error}; see {job.submitted.url}")
    else:
        output.note(f"cancelled: {job.submitted.name}")


@contextlib.contextmanager
def _google(args: argparse.Namespace, emulated: bool) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        if emulated:
            stack.enter_context(private_google(args.google_root, args.gcs_root))
        yield


def _make_bucket(target: VertexTarget) -> None:
    """Nobody has made buckets in a private Google."""
    Folder(f"gs://{target.bucket}", target.project).create_bucket(target.location)


class _Output:
    """What the command says: while it works to standard error, and what came of it to standard output or a file."""

    def __init__(self, args: argparse.Namespace, stream: TextIO) -> None:
        self.waits: bool = args.wait
        self._stream = stream
        self._args = args
        self._file: Path | None = args.output
        self._is_json = args.format == "json"
        self._shows_text = not self._is_json or self._file is not None
        self._lines: list[str] = []
        self._document: dict[str, Any] = {"jobs": [], "sent": [], "notes": []}

    def job(self, job: T5XJob, verdict: Verdict) -> None:
        self._document["jobs"].append(as_values(job, verdict))
        self._show(as_text(job, verdict, spec=self._args.dry_run))

    def checks(self, results: Sequence[RunResult]) -> bool:
        """Shows what lint and plan found; returns whether they passed."""
        from t5x_harness.report.json import document
        from t5x_harness.report.terminal import render

        report = Report(tuple(results))
        self._document["report"] = document(report)
        self._show(render(report, width=_WIDTH, notes=self._args.verbose).splitlines())
        return report.passed

    def note(self, text: str) -> None:
        self._document["notes"].append(text)
        self._say(f"t5x-harness submit: {text}")

    def sent(self, launched: LaunchedJob) -> None:
        how = "; Ctrl-C cancels it" if self.waits else f"; follow it with --attach={launched.submitted.id}"
        self._say(f"{launched.submitted.name}\n  {launched.submitted.url}{how}")

    def state(self, launched: LaunchedJob) -> Callable[[str], None]:
        return lambda state: self._say(f"{launched.submitted.display_name}: {state}")

    def log(self, line: object) -> None:
        self._say(str(line))

    def end(self, launched: LaunchedJob, end: RunEnd | None) -> None:
        self._document["sent"].append(end_as_values(launched, end))
        if end is not None:
            self._show(end_as_text(launched, end))

    def close(self) -> None:
        """Writes what is for a program, or for a file."""
        text = json.dumps(self._document, indent=2) if self._is_json else "\n".join(self._lines)
        if self._file is not None:
            self._file.write_text(f"{text}\n", encoding="utf-8")
        elif self._is_json:
            print(text, file=self._stream, flush=True)

    def _show(self, lines: Iterable[str]) -> None:
        shown = list(lines)
        self._lines += shown
        if self._shows_text:
            print("\n".join(shown), file=self._stream, flush=True)

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)
