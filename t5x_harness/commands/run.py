"""``t5x-harness run``: runs configs through all stages, or up to a given one, on an emulated TPU slice."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from t5x_harness.commands.arguments import INTERRUPTED, UsageError, add_run_arguments, checked_specs, note
from t5x_harness.commands.report_output import write_for_the_terminal, write_report
from t5x_harness.report.report import Report
from t5x_harness.settings.command_line import session_options
from t5x_harness.spec import NOTHING_IMPORTED, Imports, RunResult, RunSpec

EPILOG = """\
examples:
  t5x-harness run configs/finetune.gin
  t5x-harness run configs/finetune.gin --gin.BATCH_SIZE=16 --slice=v3-32
  t5x-harness run --gin_file=t5x/examples/t5/t5_1_1/tiny.gin --gin_file=my_run.gin --run_mode=train
  t5x-harness run                                 the runs that pyproject.toml declares
  t5x-harness run configs/finetune.gin --format github
                                                  annotations, as a step of a GitHub workflow

A config is shrunk to a few small steps (see --full-size); the report lists every change.
exit status: 0 every stage passed, 1 a stage failed, 2 wrong usage
"""

_LAST = 3
"""The number of failed runs' folders that are kept in TMPDIR, as pytest does with its own."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``run`` to a parser."""
    add_run_arguments(parser, "run")


def main(arguments: argparse.Namespace) -> int:
    """Runs the configs up to the stage that the arguments name, and writes the report.

    Raises:
      UsageError: the arguments are wrong.
      ModelDirError: a run cannot have the folder that it requests.
    """
    from t5x_harness.aot.libtpu import LibtpuMissing, is_installed
    from t5x_harness.system.own_folders import own_folder

    specs = checked_specs(arguments)
    if arguments.aot and not is_installed():
        raise UsageError(f"--aot: {LibtpuMissing()}")
    with own_folder("t5x-harness-run-", last=_LAST) as folder:
        report = _report_of(specs, arguments, folder.path)
        if report is None:
            return INTERRUPTED
        try:
            return write_report(report, arguments)
        finally:
            if not report.passed and any(path.is_file() for path in folder.path.glob("*/**/*")):
                folder.is_kept = True
                print(f"logs and outputs are kept in {folder.path}", file=sys.stderr)


def _report_of(specs: Sequence[RunSpec], arguments: argparse.Namespace, workspace: Path) -> Report | None:
    """Returns the outcome of runs. If they are interrupted, prints the results so far and returns None."""
    from t5x_harness.runs.pool import run_specs
    from t5x_harness.system.ending import Ending
    from t5x_harness.system.processes import own_seconds
    from t5x_harness.workers.progress import ProgressPrinter

    given = session_options(vars(arguments))
    results: list[RunResult] = []
    printers: list[ProgressPrinter] = []
    imports: list[Imports] = []

    def progress(spec: RunSpec) -> ProgressPrinter:
        printers.append(ProgressPrinter(sys.stderr, label=spec.name))
        return printers[-1]

    def tell() -> None:
        for printer in printers:
            printer.close()
        if results:  # as text, because programs only get complete reports
            report = Report(tuple(results), seconds=time.perf_counter() - arguments.started)
            to_programs = arguments.format != "text" and arguments.output is None
            write_for_the_terminal(report, arguments, sys.stderr if to_programs else sys.stdout)
        not_written = arguments.output or (f"--format {arguments.format}" if arguments.format != "text" else "")
        note("interrupted" + (f"; {not_written} was not written" if not_written else ""))

    def on_interrupt(known: Sequence[RunResult]) -> None:
        ending.begin()
        results.extend(known)
        ending.tell()  # before running processes are ended, which may take long

    ending = Ending(INTERRUPTED, tell)
    runs = run_specs(
        specs,
        workspace,
        timeout=given.timeout,
        in_process=given.in_process,
        network=given.network == "allow",
        keep=not given.no_keep,
        ahead=0 if given.ahead is None and any(spec.settings.full_size for spec in specs) else given.ahead,
        on_progress=None if arguments.quiet else progress,
        on_note=note,
        on_imports=imports.append,
        on_interrupt=on_interrupt,
    )
    try:
        with ending.watching():
            for result in runs:
                if printers:
                    printers[-1].close()
                results.append(result)
        return Report(
            tuple(results),
            seconds=time.perf_counter() - arguments.started,
            imports=imports[-1] if imports else NOTHING_IMPORTED,
            start_seconds=max(0.0, own_seconds() - (time.perf_counter() - arguments.started)),
        )
    except KeyboardInterrupt:
        ending.begin()
        runs.close()
        ending.tell()
        return None
    finally:
        ending.restore()
        for printer in printers:
            printer.close()
