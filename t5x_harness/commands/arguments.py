"""The arguments that commands share, in T5X's style, and the runs that they describe."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t5x_harness.findings.printable import printable
from t5x_harness.settings.command_line import add_to_command, configuration_of
from t5x_harness.settings.configuration import Configuration, files_of, require_matches
from t5x_harness.settings.forms import SettingsError, count, duration
from t5x_harness.settings.options import RUNS, option_of
from t5x_harness.settings.project import find_project
from t5x_harness.spec import RunSpec
from t5x_harness.system.secrets import masked

if TYPE_CHECKING:
    from t5x_harness.gin.reading import ConfigReader

FINE, FOUND, USAGE, INTERRUPTED = 0, 1, 2, 130
"""The exit statuses: all is well; something was found or failed; the usage is wrong; interrupted by Ctrl-C."""

FORMATS = ("text", "json", "sarif", "github", "junit")


class UsageError(ValueError):
    """The arguments are wrong; the message says which, and how to fix them."""


def add_run_arguments(parser: argparse.ArgumentParser, command: str) -> dict[str, argparse._ArgumentGroup]:
    """Adds the arguments that all commands for configs share to the parser of one of these commands.

    Returns:
      The groups of arguments, by heading.
    """
    job = command == "submit"
    what = parser.add_argument_group("what to run")
    what.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="a gin file, which is one run; or a folder, for every run config below it. With neither FILE nor "
        "--gin_file: the runs of [tool.t5x_harness] in the nearest pyproject.toml",
    )
    what.add_argument(
        "--gin_file",
        action="append",
        default=[],
        metavar="FILE",
        help="one of several gin files of one run, parsed in the given order as T5X does; may be repeated",
    )
    rows = RUNS if not job else [_JOB_ROWS.get(row.field, row) for row in RUNS]
    groups = {"what to run": what}
    add_to_command(parser, rows, command, groups)
    if command == "fit":
        _add_format_arguments(parser.add_argument_group("output"), FORMATS[:2])
        return groups
    if job:
        parser.set_defaults(full_size=True, full_mesh=True)
    _add_output_arguments(groups["output"], FORMATS[:2] if job else FORMATS)
    return groups


_JOB_ROWS = {
    "mode": dataclasses.replace(
        option_of("mode"), choices=(), metavar="RUN_MODE"
    ),  # any run mode of T5X, which the command checks
    "model_dir": dataclasses.replace(
        option_of("model_dir"),
        help="where the job writes, gs://…",
        default="the folder that the config names, or one of its own in the bucket",
    ),
}


def _add_format_arguments(output: argparse._ArgumentGroup, formats: Sequence[str]) -> None:
    form = output.add_mutually_exclusive_group()
    form.add_argument(
        "--format",
        choices=formats,
        default="text",
        help="text for people; json with everything, the source of each binding too"
        + (
            "; sarif for code scanning; github for annotations in a workflow; junit for CI services that show tests"
            if "sarif" in formats
            else ""
        )
        + " (default: text)",
    )
    form.add_argument("--json", dest="format", action="store_const", const="json", help="the same as --format json")
    output.add_argument(
        "--output",
        type=_report_file,
        metavar="FILE",
        help="write the report in --format to FILE, and as text to standard output",
    )


def _add_output_arguments(output: argparse._ArgumentGroup, formats: Sequence[str]) -> None:
    _add_format_arguments(output, formats)
    amount = output.add_mutually_exclusive_group()
    amount.add_argument(
        "-v", "--verbose", action="store_true", help="print notes, too, and all tables, and not only their number"
    )
    amount.add_argument(
        "-q", "--quiet", action="store_true", help="print findings and the last line only, and no progress"
    )
    output.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="colors (default: auto)")


def _report_file(text: str) -> Path:
    """Refuses a report file that cannot be written, before anything is run."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder: name a file in it")
    if path.suffix == ".gin" and path.exists():
        raise argparse.ArgumentTypeError(f"{text} is a gin file, which the report would replace: name another")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text}: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text}: no permission to write it")
    return path


def add_job_options(group: argparse._ArgumentGroup) -> None:
    """Adds an option, with the field's name, for each field of :class:`~t5x_harness.vertex.container.JobOptions`."""
    from t5x_harness.vertex.container import STRATEGIES

    group.add_argument(
        "--strategy",
        metavar="NAME",
        help=f"how it finds machines: {', '.join(STRATEGIES)} (default: {STRATEGIES[0]}); SPOT ones may be taken away, "
        "FLEX_START waits for some",
    )
    group.add_argument(
        "--max-wait-duration", type=duration, metavar="TIME", help="how long FLEX_START waits, as 6h (default: a day)"
    )
    group.add_argument(
        "--reservation",
        metavar="NAME",
        help="the reservation whose machines it takes: any, none, or projects/PROJECT/zones/ZONE/reservations/NAME",
    )
    group.add_argument("--network", metavar="NAME", help="projects/NUMBER/global/networks/NAME that it is peered with")
    group.add_argument("--boot-disk-type", metavar="TYPE", help="disk of its machine, as pd-ssd")
    group.add_argument("--boot-disk-size-gb", type=count, metavar="N", help="size of that (default: 100)")
    group.add_argument(
        "--restart-job-on-worker-restart", action="store_true", help="restart all of it where one worker is lost"
    )
    group.add_argument("--disable-retries", action="store_true", help="try nothing again")


def parts(text: str) -> tuple[str, ...]:
    """Reads an argument that consists of values separated by commas."""
    return tuple(part for part in text.split(",") if part)


def pairs(given: Iterable[str], option: str) -> dict[str, str]:
    """Reads arguments of the form ``NAME=VALUE``.

    Raises:
      UsageError: an argument has another form, or two have the same name.
    """
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} {masked(option, text)}: give NAME=VALUE")
        if name in found:
            raise UsageError(f"{option} {name} is given twice: leave one out")
        found[name] = value
    return found


def require_google_sdk() -> None:
    """Refuses to continue if no job can be sent.

    Raises:
      UsageError: Google's SDK is not installed.
    """
    if importlib.util.find_spec("google") is None or importlib.util.find_spec("google.cloud.aiplatform") is None:
        raise UsageError("jobs need google-cloud-aiplatform, not installed here: pip install 't5x-harness[vertex]'")


def specs_of(arguments: argparse.Namespace, cwd: Path, reader: ConfigReader | None = None) -> tuple[RunSpec, ...]:
    """Returns the runs that parsed arguments describe.

    Args:
      arguments: the arguments, parsed by a parser of :func:`add_run_arguments`.
      cwd: the working directory, from which relative paths start.
      reader: reads the configs in folders; None for a reader that is used only here.

    Raises:
      UsageError: there is nothing to run, or the arguments contradict each other.
      SettingsError: pyproject.toml or an environment variable has a mistake in it.
    """
    from t5x_harness.gin.reading import ConfigReader

    if arguments.files and arguments.gin_file:
        raise UsageError(
            "FILE and --gin_file at once: each FILE is a run of its own, several --gin_file are one run; use either"
        )
    project = find_project(cwd)
    named = arguments.files or arguments.gin_file
    try:
        configuration = configuration_of(vars(arguments), project, os.environ, cwd, cwd if named else project.root)
        specs = tuple(_specs(configuration, arguments, reader or ConfigReader()))
        configuration.check_goldens(specs)
    except SettingsError as error:
        raise UsageError(str(error)) from None
    if (model_dir := arguments.model_dir if hasattr(arguments, "model_dir") else None) is not None and len(specs) > 1:
        raise UsageError(
            f"--model_dir {model_dir} for {len(specs)} runs: two runs cannot write into one folder; "
            "run them one at a time"
        )
    return specs


def checked_specs(arguments: argparse.Namespace, reader: ConfigReader | None = None) -> tuple[RunSpec, ...]:
    """Returns the runs, after checking for everything that would make it pointless to start them.

    Args:
      arguments: see :func:`specs_of`.
      reader: reads the configs; None for a reader that is used only here.

    Raises:
      UsageError: there is nothing to run, a file is missing, or there is no such runtime.
      ModelDirError: a run cannot have the folder that it requests.
      ProjectError: pyproject.toml has a mistake in it.
    """
    from t5x_harness.gin.reading import ConfigReader
    from t5x_harness.lint.stage import missing_gin_files
    from t5x_harness.runs.model_dirs import ensure_model_dirs
    from t5x_harness.runtime.choice import RuntimeChoiceError

    reader = reader or ConfigReader()
    try:
        specs = specs_of(arguments, Path.cwd(), reader)
        if missing := [each for spec in specs for each in missing_gin_files(reader.program_of(spec))]:
            raise UsageError(missing[0])
        data = getattr(arguments, "tfds_data_dir", None)  # lint has none
        if data and "://" not in data and not os.path.isdir(data):
            raise UsageError(f"--tfds_data_dir: there is no folder {data}")
        ensure_model_dirs(specs)
        if any(spec.settings.campaign is not None for spec in specs):
            if arguments.preempt is not None:
                raise UsageError("--preempt orders one fault, and --campaign draws several: give one of the two")
        elif getattr(arguments, "times", None) is not None:
            raise UsageError("--times is the number of faults of --campaign: give --campaign=SEED, too")
    except RuntimeChoiceError as error:
        raise UsageError(str(error)) from None
    return specs


def _specs(configuration: Configuration, arguments: argparse.Namespace, reader: ConfigReader) -> Iterator[RunSpec]:
    if arguments.gin_file:
        runs = [(Path(arguments.gin_file[-1]).stem, configuration.spec(arguments.gin_file))]
    elif arguments.files:
        files = _expanded(configuration, arguments.files, reader)
        runs = [(Path(file).stem, configuration.spec([file])) for file in files]
    else:
        runs = [*_of_project(configuration)]
    keeps_plans = hasattr(arguments, "plan_golden")  # commands that plan nothing have no such option
    for name, spec in runs:
        yield configuration.with_golden(spec, name) if keeps_plans else spec


def _expanded(configuration: Configuration, names: Iterable[str], reader: ConfigReader) -> Iterator[str]:
    """Yields the files that the user named, with each folder replaced by the run configs below it.

    Prints the names of files that are left out.
    """
    from t5x_harness.lint.classify import FileKind, classify_program

    cwd = configuration.cwd
    for name in dict.fromkeys(names):
        if not name:
            raise UsageError("a FILE is empty: name a gin file or a folder, or give none for the project's runs")
        if not (cwd / name).is_dir():
            yield name
            continue
        below = sorted(path for path in (cwd / name).rglob("*.gin") if path.is_file())
        chosen: list[str] = []
        unfinished: dict[str, str] = {}
        included: set[str] = set()
        for path in below:
            file = os.path.join(name, path.relative_to(cwd / name))
            program = reader.program_of(configuration.spec([file]))
            verdict = classify_program(program)
            included.update(program.files[1:])
            # A file that cannot be read is also chosen: lint then says why.
            if verdict.kind is not FileKind.FRAGMENT:
                chosen.append(file)
            elif verdict.mode is not None:
                unfinished[file] = verdict.reason
        for reason in (reason for file, reason in unfinished.items() if file not in included):
            note(f"left out: {reason}")
        if not chosen:
            seen = f"{len(below)} gin files that are only included" if below else "no gin file"
            raise UsageError(f"{name}: no run config there, but {seen}")
        yield from chosen


def _of_project(configuration: Configuration) -> Iterator[tuple[str, RunSpec]]:
    """Yields the declared runs and the files of the globs, relative to the project's folder, each with its name."""
    project, root = configuration.project, configuration.cwd
    if not project.runs and not project.gin_files:
        raise UsageError(
            "nothing to run: name a gin file, or declare runs in [tool.t5x_harness] of a pyproject.toml "
            f"(looked in {configuration.here} and above)"
        )
    for declared in project.runs:
        yield declared.name, configuration.spec(declared.gin_files, declared=declared)
    require_matches(root, project.gin_files)
    for file in files_of(root, project.gin_files):
        yield file.stem, configuration.spec([str(file.relative_to(root))])


def note(message: str) -> None:
    """Prints a line for the user to standard error, where it does not mix with a report."""
    print(f"t5x-harness: {printable(message)}", file=sys.stderr)
