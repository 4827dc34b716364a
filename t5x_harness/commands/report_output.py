"""Writes a report to the places that the command's arguments name."""

import argparse
import os
import sys
from pathlib import Path
from typing import TextIO

from t5x_harness.commands.arguments import FINE, FOUND, UsageError
from t5x_harness.report.report import Report

PLAIN_WIDTH = 120
"""The width of text in columns if standard output is not a terminal."""


def write_report(report: Report, arguments: argparse.Namespace) -> int:
    """Writes a report to standard output, to the file of ``--output`` and to the step summary of a GitHub workflow.

    Args:
      report: the report on the runs.
      arguments: the arguments ``command``, ``format``, ``output``, ``verbose``, ``quiet`` and ``color``. The text of
        ``plan`` also shows the facts that each stage established.

    Returns:
      The exit status.

    Raises:
      UsageError: the file cannot be written; everything else has been.
    """
    from t5x_harness.report.github import append_step_summary

    file: Path | None = arguments.output
    if file is None and arguments.format != "text":
        sys.stdout.write(_for_programs(report, arguments.format))
    else:
        write_for_the_terminal(report, arguments, sys.stdout)
    sys.stdout.flush()
    append_step_summary(report, os.environ)
    if file is not None:
        is_text = arguments.format == "text"
        text = _as_text(report, arguments, width=PLAIN_WIDTH) if is_text else _for_programs(report, arguments.format)
        try:
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--output {file}: {error.strerror}") from None
    return FINE if report.passed else FOUND


def write_for_the_terminal(report: Report, arguments: argparse.Namespace, stream: TextIO) -> None:
    """Writes the text for people to a stream, as wide as its terminal; see :func:`write_report`."""
    color = arguments.color == "always" or (
        arguments.color == "auto" and stream.isatty() and not os.environ.get("NO_COLOR")
    )
    width = PLAIN_WIDTH
    if stream.isatty():
        import shutil

        width = shutil.get_terminal_size().columns
    stream.write(_as_text(report, arguments, width=width, color=color))
    stream.flush()


def _for_programs(report: Report, form: str) -> str:
    if form == "json":
        from t5x_harness.report.json import render
    elif form == "sarif":
        from t5x_harness.report import sarif
        from t5x_harness.rulebook.pages import rule_descriptors

        return sarif.render(report, rule_descriptors)
    elif form == "junit":
        from t5x_harness.report.junit import render
    else:
        from t5x_harness.report.github import render
    return render(report)


def _as_text(report: Report, arguments: argparse.Namespace, *, width: int, color: bool = False) -> str:
    from t5x_harness.report.terminal import render, render_quietly

    if arguments.quiet:
        return render_quietly(report, width=width, color=color)
    facts = arguments.command == "plan"
    return render(report, width=width, color=color, facts=facts, notes=arguments.verbose)
