"""``t5x-harness submit``: runs as Vertex AI jobs, which are checked here before they are sent."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterator, Sequence

from t5x_harness.buckets.folders import Folder, StorageError
from t5x_harness.commands.google_arguments import root_of
from t5x_harness.commands.submit.arguments import (
    as_emulated,
    jobs_of,
    target_of,
    targets_emulated_google,
)
from t5x_harness.commands.submit.batch import PrintedBatch
from t5x_harness.commands.submit.output import SubmitOutput
from t5x_harness.settings.command_line import from_environment
from t5x_harness.settings.options import option_of
from t5x_harness.spec import Mode
from t5x_harness.vertex.arguments import RunMode
from t5x_harness.vertex.closure import unstaged_files
from t5x_harness.vertex.describing import refusals, verdict_of
from t5x_harness.vertex.emulated import emulated_google
from t5x_harness.vertex.errors import VertexError
from t5x_harness.vertex.job import T5XJob
from t5x_harness.vertex.machine import DEFAULT_MAX_CHIP_HOURS, ChipHoursError
from t5x_harness.vertex.target import VertexTarget

_SMALL = (
    "the emulated Vertex AI runs jobs on this machine's CPU: small, with a few steps, as t5x-harness run does; the "
    "log says what was changed. --full-size runs them at the sizes and for the steps that the config names"
)
_FULL_SIZE = "the emulated Vertex AI runs jobs on this machine's CPU, at full size (--full-size): that may take long"


def main(args: argparse.Namespace) -> int:
    """Checks, sends and follows jobs.

    Returns:
      0 where all is well, 1 where a job was refused or failed.

    Raises:
      UsageError: the arguments make no sense; nothing was sent.
      ProjectError: pyproject.toml has a mistake in it.
    """
    from t5x_harness.google.server.settings import ServerError

    emulated = targets_emulated_google(args)
    target = target_of(args, emulated)
    jobs = [] if args.attach else jobs_of(args, target)
    output = SubmitOutput(args, sys.stdout)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # Google's SDK tells there what it does
            if args.attach:
                return _attached(args, target, emulated, output)
            return _Submission(args, jobs, emulated, output).run()
    except (ChipHoursError, ServerError, StorageError, VertexError) as error:
        output.note(str(error))
        return 1
    finally:
        output.close()


def _attached(args: argparse.Namespace, target: VertexTarget, emulated: bool, output: SubmitOutput) -> int:
    with _google(args, emulated), PrintedBatch(output, waits=args.wait) as batch:
        batch.attach(args.attach, target)
        return batch.finish()


class _Submission:
    """Some jobs, from their checks to their ends."""

    def __init__(self, args: argparse.Namespace, jobs: Sequence[T5XJob], emulated: bool, output: SubmitOutput) -> None:
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
            job.chip_hours.require(self._args.max_chip_hours or DEFAULT_MAX_CHIP_HOURS)
        for job, verdict in zip(self._jobs, verdicts, strict=True):
            self._output.job(job, verdict)
        if not self._passes_checks():
            self._output.note("nothing was sent: fix what was found, or send it as it is with --no-check")
            return 1
        if self._args.dry_run:
            self._output.note("nothing was sent: --dry-run")
            return 0
        jobs = self._jobs
        if self._emulated:
            self._output.note(_FULL_SIZE if self._args.job_full_size else _SMALL)
            jobs = [as_emulated(job, self._args) for job in jobs]
        with _google(self._args, self._emulated):
            if self._emulated:
                _make_bucket(self._jobs[0].target)
            with PrintedBatch(self._output, waits=self._args.wait) as batch:
                for job in jobs:
                    batch.launch(job, duplicate=self._args.duplicate)
                return batch.finish()

    def _passes_checks(self) -> bool:
        """Runs lint and plan; returns whether they found no error."""
        if self._args.no_check:
            self._output.note("not checked: lint and plan (--no-check)")
            return True
        plannable = [job for job in self._jobs if job.run_mode is not RunMode.PRECOMPILE and job.machine.slice]
        for job in self._jobs:
            if job not in plannable:
                why = "precompile" if job.run_mode is RunMode.PRECOMPILE else f"{job.machine} is not a TPU slice"
                self._output.note(f"not checked: lint and plan of {job.name} ({why})")
        specs = [dataclasses.replace(job.run, mode=Mode(job.run_mode.value)) for job in plannable]
        if not specs:
            return True
        from t5x_harness.runs.job import aot_mode
        from t5x_harness.runs.several import plan_specs

        given = {**vars(self._args), **from_environment([option_of("tpu_aot")], vars(self._args), os.environ)}
        aot, why = aot_mode(given["tpu_aot"], full_size=True)
        if why:
            self._output.note(f"not checked: whether the programs fit: {why}")
        results = plan_specs(specs, aot)
        passed = self._output.checks(results)
        for job, result in zip(plannable, results, strict=True):
            for file in unstaged_files(job.closure, result):
                self._output.note(f"{job.name}: not staged: {file}")
        return passed


@contextlib.contextmanager
def _google(args: argparse.Namespace, emulated: bool) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        if emulated:
            root = root_of(args.google_root, "--google-root")
            stack.enter_context(emulated_google(str(root) if root else None, args.gcs_root))
        yield


def _make_bucket(target: VertexTarget) -> None:
    """Makes the bucket in an emulated Google Cloud, where nobody else does."""
    Folder(f"gs://{target.bucket}", target.project).create_bucket(target.location)
