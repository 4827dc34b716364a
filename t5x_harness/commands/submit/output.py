"""The output of ``t5x-harness submit``: text for people, or one JSON document."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO

from t5x_harness.findings.printable import printable
from t5x_harness.google.vertex.validation import SpecVerdict
from t5x_harness.report.json import document, json_text
from t5x_harness.report.programs import verdicts
from t5x_harness.report.report import Report
from t5x_harness.spec import RunResult, Stage
from t5x_harness.vertex.describing import as_text, as_values, end_as_text, end_as_values
from t5x_harness.vertex.job import T5XJob
from t5x_harness.vertex.launching import LaunchedJob, RunEnd

_WIDTH = 120


class SubmitOutput:
    """The command's output: progress to standard error, and the outcome to standard output or a file.

    Args:
      args: parsed, with the shared arguments for output.
      stream: standard output.
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
        return report.passed

    def note(self, text: str) -> None:
        """Shows a message about no job, or about one that was not sent."""
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
        """Shows progress."""
        print(printable(text), file=sys.stderr, flush=True)

    def close(self) -> None:
        """Writes the report for a program, or for a file."""
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
