"""``t5x-harness lint``: reports the mistakes in configs, and fixes those that are safe to fix."""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from t5x_harness.commands.arguments import UsageError, add_run_arguments, checked_specs
from t5x_harness.commands.report_output import write_report
from t5x_harness.findings.printable import printable
from t5x_harness.gin.reading import ConfigReader
from t5x_harness.lint.classify import RunIf
from t5x_harness.report.report import Report
from t5x_harness.runs.run import Run
from t5x_harness.settings.project import find_project
from t5x_harness.spec import RunSpec, Stage

if TYPE_CHECKING:
    from t5x_harness.lint.fixes import Fixes

EPILOG = """\
examples:
  t5x-harness lint configs/finetune.gin
  t5x-harness lint configs/                       every run config below a folder
  t5x-harness lint --gin_file=model.gin --gin_file=t5x/configs/runs/pretrain.gin --gin.TRAIN_STEPS=100
  t5x-harness lint finetune.gin --gin.MODEL_DIR=\\"gs://bucket/run\\" -v
  t5x-harness lint finetune.gin --diff            what --fix would change
  t5x-harness lint finetune.gin --fix             fixes what is safe to fix and reports the rest
  t5x-harness lint --fragments $(git diff --name-only '*.gin')
                                                  changed files, whatever each is for, as pre-commit does
  t5x-harness lint finetune.gin --format json     findings, and where each binding's value comes from
  t5x-harness lint configs/ --format github       annotations, as a step of a GitHub workflow
  t5x-harness lint configs/ --format sarif --output lint.sarif
                                                  text here, and a file for GitHub's code scanning

A FILE that binds none of train, evaluate and infer is a fragment: it is judged without the rules that need a
whole run, and the report says which. Where you name a --gin_file, a binding or a --run_mode, it is a run.

--fix changes only files that you name, or that lie below a folder that you name, and never those of installed
packages. It fixes what can only be meant in one way: quotes, %, a name with one letter wrong, a number written
as a string or a float, a binding above the include that overrides it, imports, and () of references.

Where $GITHUB_STEP_SUMMARY names a file, a summary in Markdown is added to it, whatever the format.

exit status: 0 no error (with --diff: nothing to fix), 1 errors were found, 2 wrong usage
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``lint`` to a parser."""
    add_run_arguments(parser, "lint")
    group = parser.add_argument_group("fixing and fragments")
    group.add_argument(
        "--fix", action="store_true", help="print what is safe to fix as a diff, write it, and report what is left"
    )
    group.add_argument(
        "--diff", action="store_true", help="print what --fix would change, and nothing else; no file is written"
    )
    group.add_argument(
        "--fragments",
        action="store_true",
        help="a FILE that leaves something open (a required value, a macro, the model) is meant to be included by "
        "another file, too, and not a run that forgot it",
    )


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Does not look for garbage in cycles, of which lint makes little: that took an eighth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_without_garbage_collection()
def main(arguments: argparse.Namespace) -> int:
    """Lints configs, and fixes them if requested.

    Returns:
      The exit status: the report's status; with ``--diff``, 1 if there is something to fix and 0 otherwise.

    Raises:
      UsageError: the arguments contradict each other, the slice does not exist, or a file cannot be written.
    """
    reader = ConfigReader()
    specs = checked_specs(arguments, reader)
    run_if = _run_if(arguments)
    if arguments.diff:
        return _show(_fixes(arguments, specs, run_if), arguments)
    if arguments.fix:
        _fix(_fixes(arguments, specs, run_if), arguments)
        reader = ConfigReader()  # the files have changed
    on_slice = {cwd: _names_slice(arguments, cwd) for cwd in {spec.cwd for spec in specs}}
    results = []
    for spec in specs:
        run = Run(spec, None, program=reader.program_of(spec), run_if=run_if, lint_on_slice=on_slice[spec.cwd])
        run.stage(Stage.LINT)
        results.append(run.result(with_bindings=arguments.format == "json"))  # no other format shows them
    return write_report(Report(tuple(results), seconds=time.perf_counter() - arguments.started), arguments)


def _run_if(arguments: argparse.Namespace) -> RunIf:
    """Returns whether the files are meant as runs, which they are if the arguments describe a run."""
    means_run = bool(arguments.gin_file or arguments.bindings or arguments.mode or not arguments.files)
    if arguments.fragments and means_run:
        raise UsageError(
            "--fragments is for FILEs alone: --gin_file, --gin_bindings (or --gin.NAME=VALUE) and --run_mode describe "
            "a run"
        )
    if arguments.fragments:
        return RunIf.COMPLETE
    return RunIf.ALWAYS if means_run else RunIf.STARTED


def _names_slice(arguments: argparse.Namespace, cwd: str) -> bool:
    """Returns whether the user named the slice of the runs in a folder; otherwise it is the default slice."""
    return arguments.slice is not None or "slice" in find_project(Path(cwd)).layer


def _fixes(arguments: argparse.Namespace, specs: Sequence[RunSpec], run_if: RunIf) -> Fixes:
    """Returns what can be fixed safely."""
    from t5x_harness.lint.fixes import Config, fix
    from t5x_harness.runtime.choice import runtime_of

    alike = {(spec.runtime, spec.cwd, spec.python_path): spec for spec in specs}
    parents = {key: runtime_of(spec).location for key, spec in alike.items()}
    configs = [
        Config(spec, run_if, parents[spec.runtime, spec.cwd, spec.python_path], _names_slice(arguments, spec.cwd))
        for spec in specs
    ]
    return fix(configs, _may_change(arguments, specs))


def _may_change(arguments: argparse.Namespace, specs: Sequence[RunSpec]) -> Callable[[Path], bool]:
    """Returns a function that takes a file's real path and returns whether the user named it or a folder above it."""
    places = ((Path(s.cwd) / folder, file) for s in specs for folder in ("", *s.search_paths) for file in s.gin_files)
    named = {Path(os.path.realpath(folder / file)) for folder, file in places}
    folders = [Path(os.path.realpath(name)) for name in arguments.files if os.path.isdir(name)]
    return lambda path: path in named or any(path.is_relative_to(folder) for folder in folders)


def _show(fixes: Fixes, arguments: argparse.Namespace) -> int:
    """Prints the changes that ``--fix`` would make; returns the exit status."""
    if arguments.format != "text" or arguments.output is not None:
        raise UsageError("--diff prints a diff and no report: leave out --format, --json and --output, or --diff")
    _write_diffs(fixes, sys.stdout, applicable=not sys.stdout.isatty())
    print(_summary(fixes, "would be fixed"), file=sys.stderr)
    _explain_left(fixes)
    return 1 if fixes.files else 0


def _fix(fixes: Fixes, arguments: argparse.Namespace) -> None:
    """Prints the diff, then writes the files; if standard output is for a program's report, the diff goes elsewhere."""
    from t5x_harness.lint.fixes import write_atomically

    beside: TextIO = sys.stdout if arguments.format == "text" or arguments.output is not None else sys.stderr
    _write_diffs(fixes, beside, applicable=False)
    for file in fixes.files:
        try:
            write_atomically(file.path, file.after)
        except OSError as error:
            raise UsageError(f"cannot write {file.shown}: {error.strerror}") from None
    print(f"{_summary(fixes, 'fixed')}\n", file=beside)
    _explain_left(fixes)


def _write_diffs(fixes: Fixes, stream: TextIO, *, applicable: bool) -> None:
    """Writes the diffs: unchanged for a program that applies them, and otherwise printable."""
    for file in fixes.files:
        stream.write(file.diff if applicable else printable(file.diff))
    stream.flush()


def _summary(fixes: Fixes, done: str) -> str:
    if not fixes.files:
        return "nothing to fix"
    findings, files = len(fixes.fixed), len(fixes.files)
    return f"{findings} finding{'s' * (findings != 1)} in {files} file{'s' * (files != 1)} {done}"


def _explain_left(fixes: Fixes) -> None:
    for finding in fixes.refused:
        place = printable(finding).location
        print(f"{place}: {finding.code} is left: fixing it would bring new errors", file=sys.stderr)
    for file in fixes.elsewhere:
        print(f"{printable(file)} could be fixed, too: name it", file=sys.stderr)
