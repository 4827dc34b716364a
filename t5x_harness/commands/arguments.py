"""The arguments that ``lint``, ``plan`` and ``run`` share, in T5X's own style, and the runs that they mean."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from t5x_harness.findings.silencing import codes_to_silence, not_codes
from t5x_harness.settings.project import ProjectConfig, find_project
from t5x_harness.spec import GCS, READ_SECONDS, Mode, RunSpec
from t5x_harness.standins.policy import Policy

__all__ = [
    "DEFAULT_SLICE",
    "FORMATS",
    "UsageError",
    "add_run_arguments",
    "add_runtime_argument",
    "rewrite_gin",
    "specs_of",
]

DEFAULT_SLICE = "v3-8"
FORMATS = ("text", "json", "sarif", "github")


class UsageError(ValueError):
    """The arguments make no sense; the message says which and how to mend it."""


def add_run_arguments(
    parser: argparse.ArgumentParser, *, job: bool = False, runs: bool = True, executes: bool = True
) -> None:
    """Adds the shared arguments to a parser.

    Args:
      parser: of a command.
      job: for runs that are jobs elsewhere, as they are: of T5X's modes it may be any, which the command judges.
      runs: whether the command runs anything, and does not only read.
      executes: whether it trains, evaluates or infers here, and so has a size to do that at.
    """
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
    what.add_argument(
        "--gin_bindings",
        action="append",
        default=[],
        metavar="'NAME = VALUE'",
        help="a gin binding, parsed after the files; --gin.NAME=VALUE is the same; may be repeated",
    )
    what.add_argument(
        "--gin_search_paths",
        action="append",
        default=[],
        metavar="DIR,DIR",
        help="folders where gin files and includes are looked up, after the working directory and before T5X's own",
    )
    what.add_argument(
        "--python-path",
        action="append",
        default=[],
        metavar="DIR,DIR",
        help="folders with the configs' own modules, before python_path of [tool.t5x_harness]; may be repeated",
    )
    what.add_argument(
        "--run_mode", choices=None if job else [m.value for m in Mode], help="what the config is for (default: see it)"
    )
    how = parser.add_argument_group("how to run it")
    how.add_argument("--slice", metavar="NAME", help=f"TPU slice, as v3-8, v4-32 or v3:4x4 (default: {DEFAULT_SLICE})")
    add_runtime_argument(how)
    how.add_argument(
        "--gcs-root",
        type=_folder,
        metavar="DIR",
        help="buckets that runs find there, DIR/my-bucket/x as gs://my-bucket/x; copied for each run, never written to",
    )
    if runs:
        _add_run_options(how, job=job)
    else:
        how.set_defaults(**dict.fromkeys(("tfds_data_dir", "standins", "read_seconds", "gcs", "model_dir")))
    if runs and executes and not job:
        _add_size_options(how)
    else:
        how.set_defaults(full_size=job, full_mesh=job)
    _add_output_arguments(parser, FORMATS[:2] if job else FORMATS)


def _add_run_options(how: argparse._ActionsContainer, *, job: bool) -> None:
    how.add_argument("--tfds_data_dir", metavar="DIR", help="where TFDS data lies, as for T5X")
    how.add_argument(
        "--standins",
        choices=tuple(Policy),
        help="which vocabularies, checkpoints and datasets get a stand-in: none (off), those that cannot be reached "
        "here (missing), or all in a bucket or on a hub (all) (default: missing)",
    )
    how.add_argument(
        "--read-seconds",
        type=_positive_whole,
        metavar="SECONDS",
        help="how long to read each split of the data, to find examples that cannot be preprocessed "
        f"(default: {READ_SECONDS}, and no more than 10,000 examples)",
    )
    how.add_argument(
        "--gcs",
        choices=GCS,
        help="what gs:// and /gcs are to runs: an emulated Google Cloud on this machine, whose /gcs is a plain folder "
        "(folder) or behaves as Cloud Storage FUSE (fuse), or nothing (off) (default: folder, where the extra google "
        "is installed)",
    )
    how.add_argument(
        "--model_dir",
        metavar="DIR",
        help="where the job writes, gs://… (default: the folder that the config names, or one of its own in the bucket)"
        if job
        else "keep the run's output here (default: a temporary folder; one run only)",
    )


def _add_size_options(how: argparse._ActionsContainer) -> None:
    how.add_argument(
        "--full-size",
        action="store_true",
        help="run at the sizes that the config names and on the slice's whole mesh, not shrunken",
    )
    how.add_argument(
        "--full-mesh",
        action="store_true",
        help="run on the slice's whole mesh; without it, one of more than 8 devices is cut along its data axis",
    )


def _add_output_arguments(parser: argparse.ArgumentParser, formats: Sequence[str]) -> None:
    output = parser.add_argument_group("output")
    output.add_argument(
        "--format",
        choices=formats,
        default="text",
        help="text for people; json with everything, the source of each binding too"
        + ("; sarif for code scanning; github for annotations in a workflow" if "sarif" in formats else "")
        + " (default: text)",
    )
    output.add_argument("--json", dest="format", action="store_const", const="json", help="the same as --format json")
    output.add_argument(
        "--output",
        type=_report_file,
        metavar="FILE",
        help="write the report in --format to FILE, and as text to standard output",
    )
    output.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="CODE,CODE",
        help="codes of findings to leave out, or families of them such as MSH, besides those that [tool.t5x_harness] "
        "ignores; may be repeated",
    )
    output.add_argument(
        "--select",
        action="append",
        default=[],
        metavar="CODE,CODE",
        help="leave out all other codes; what broke a run is always shown (default: select of [tool.t5x_harness], or "
        "every code)",
    )
    output.add_argument(
        "--strict",
        action="store_true",
        help="take warnings for errors, which fail their stage (default: strict of [tool.t5x_harness])",
    )
    amount = output.add_mutually_exclusive_group()
    amount.add_argument(
        "-v", "--verbose", action="store_true", help="print notes, too, and all tables, and not only their number"
    )
    amount.add_argument(
        "-q", "--quiet", action="store_true", help="print findings and the last line only, and no progress"
    )
    output.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="colours (default: auto)")


def _folder(text: str) -> str:
    """Refuses a folder that is not there before anything is run."""
    if not os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"there is no folder {text}")
    return os.path.abspath(text)


def _positive_whole(text: str) -> int:
    """A whole number from 1 up."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of seconds from 1 up, not {text!r}")
    return int(text)


def _report_file(text: str) -> Path:
    """Refuses a file that cannot be written before anything is run for it."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder: name a file in it")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text}: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text}: no permission to write it")
    return path


def rewrite_gin(arguments: Sequence[str]) -> list[str]:
    """Turns ``--gin.NAME=VALUE`` into ``--gin_bindings=NAME = VALUE``, as T5X does.

    Raises:
      UsageError: an argument has no ``=``, no name, or ``--gin.`` twice.
    """
    rewritten = []
    for argument in arguments:
        if argument.startswith("--gin."):
            name, equals, value = argument.removeprefix("--gin.").partition("=")
            if not equals or not name:
                raise UsageError(f"{argument}: a gin binding has the form --gin.NAME=VALUE")
            if name.startswith(("--gin.", "gin.")):
                raise UsageError(f"{argument}: --gin. stands there twice, write --{name.removeprefix('--')}={value}")
            rewritten.append(f"--gin_bindings={name} = {value}")
        else:
            rewritten.append(argument)
    return rewritten


def add_runtime_argument(parser: argparse._ActionsContainer) -> None:
    """Adds ``--t5x-runtime`` to a parser or to a group of its arguments."""
    parser.add_argument(
        "--t5x-runtime",
        choices=("auto", "installed", "embedded"),
        default="auto",
        help="which T5X: the installed one, the embedded one, or auto: the installed one if there is any "
        "(default: auto)",
    )


def specs_of(arguments: argparse.Namespace, cwd: Path) -> tuple[RunSpec, ...]:
    """The runs that parsed arguments mean.

    Args:
      arguments: parsed by a parser of :func:`add_run_arguments`.
      cwd: the working directory; relative paths start there.

    Raises:
      UsageError: there is nothing to run, or the arguments contradict each other.
      ProjectError: pyproject.toml has a mistake in it.
    """
    if arguments.files and arguments.gin_file:
        raise UsageError(
            "FILE and --gin_file at once: each FILE is a run of its own, several --gin_file are one run; use either"
        )
    project = find_project(cwd)
    specs: tuple[RunSpec, ...]
    if arguments.gin_file:
        specs = (_spec(arguments, project, cwd, arguments.gin_file),)
    elif arguments.files:
        specs = tuple(_spec_of_file(arguments, project, cwd, file) for file in _expanded(arguments, project, cwd))
    else:
        specs = tuple(_of_project(arguments, project, cwd))
    if any(spec.golden for spec in specs):
        from t5x_harness.plan.golden_check import shared_golden

        if problem := shared_golden(specs):
            raise UsageError(problem)
    if arguments.model_dir is not None and len(specs) > 1:
        raise UsageError(
            f"--model_dir {arguments.model_dir} for {len(specs)} runs: two runs cannot write into one folder; "
            "run them one at a time"
        )
    return specs


def _spec(arguments: argparse.Namespace, project: ProjectConfig, cwd: Path, gin_files: Sequence[str]) -> RunSpec:
    given = _listed(arguments.gin_search_paths)
    return RunSpec(
        gin_files=tuple(gin_files),
        bindings=(*project.bindings, *arguments.gin_bindings),
        search_paths=(*given, *project.search_paths),
        mode=Mode(arguments.run_mode) if arguments.run_mode else None,
        slice=arguments.slice or project.slice or DEFAULT_SLICE,
        runtime=arguments.t5x_runtime,
        python_path=(*(os.path.abspath(folder) for folder in _listed(arguments.python_path)), *project.python_path),
        tfds_data_dir=arguments.tfds_data_dir,
        full_size=arguments.full_size,
        full_mesh=arguments.full_mesh,
        model_dir=arguments.model_dir,
        cwd=os.fspath(cwd),
        ignore=_silenced(arguments, project),
        standins=arguments.standins or project.standins or Policy.MISSING.value,
        samples=project.samples,
        read_seconds=arguments.read_seconds or project.read_seconds or READ_SECONDS,
        gcs=arguments.gcs or project.gcs or GCS[0],
        gcs_root=arguments.gcs_root or project.gcs_root,
        golden=_golden(arguments, project, Path(gin_files[-1]).stem),
        golden_update=getattr(arguments, "plan_golden_update", False),
        strict=arguments.strict or project.strict,
        until=getattr(arguments, "until", None),
    )


def _golden(arguments: argparse.Namespace, project: ProjectConfig, name: str) -> str | None:
    """The golden plan of a run; commands that plan nothing have none."""
    if not hasattr(arguments, "plan_golden"):
        return None
    target = arguments.plan_golden or project.plan_golden
    if target is None and not arguments.plan_golden_update:
        return None
    from t5x_harness.plan.golden_check import NOTHING_TO_UPDATE, golden_file

    if target is None:
        raise UsageError(NOTHING_TO_UPDATE)
    return os.path.abspath(golden_file(target, name))


def _silenced(arguments: argparse.Namespace, project: ProjectConfig) -> tuple[str, ...]:
    from t5x_harness.findings.rule import all_codes

    ignore, select = _listed(arguments.ignore), _listed(arguments.select)
    for option, codes in (("--ignore", ignore), ("--select", select)):
        if problem := not_codes(codes, all_codes):
            raise UsageError(f"{option}: {problem}")
    return codes_to_silence((*project.ignore, *ignore), select or project.select, all_codes)


def _listed(given: Sequence[str]) -> tuple[str, ...]:
    """The parts of values that commas separate, of an option that may be repeated."""
    return tuple(part.strip() for text in given for part in text.split(",") if part.strip())


def _spec_of_file(arguments: argparse.Namespace, project: ProjectConfig, cwd: Path, file: str) -> RunSpec:
    return _spec(arguments, project, cwd, [file])


def _expanded(arguments: argparse.Namespace, project: ProjectConfig, cwd: Path) -> Iterator[str]:
    """The files that were named, with each folder replaced by the run configs below it; says which are left out."""
    from t5x_harness.lint.classify import Kind, classify_program
    from t5x_harness.lint.reading import program_of

    for name in dict.fromkeys(arguments.files):
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
            program = program_of(_spec_of_file(arguments, project, cwd, file))
            verdict = classify_program(program)
            included.update(program.files[1:])
            # What cannot be read is taken too: lint then says why.
            if verdict.kind is not Kind.FRAGMENT:
                chosen.append(file)
            elif verdict.mode is not None:
                unfinished[file] = verdict.reason
        for reason in (reason for file, reason in unfinished.items() if file not in included):
            print(f"t5x-harness: left out: {reason}", file=sys.stderr)
        if not chosen:
            seen = f"{len(below)} gin files that are only included" if below else "no gin file"
            raise UsageError(f"{name}: no run config there, but {seen}")
        yield from chosen


def _of_project(arguments: argparse.Namespace, project: ProjectConfig, cwd: Path) -> Iterator[RunSpec]:
    """The declared runs and the files of the globs, started from the project's folder."""
    if not project.runs and not project.gin_files:
        raise UsageError(
            "nothing to run: name a gin file, or declare runs in [tool.t5x_harness] of a pyproject.toml "
            f"(looked in {cwd} and above)"
        )
    root = project.root
    for declared in project.runs:
        spec = _spec(arguments, project, root, declared.gin_files)
        own = declared.overrides(project, tuple(arguments.gin_bindings), spec.slice)
        own["search_paths"] = (*spec.search_paths[: -len(project.search_paths) or None], *own["search_paths"])
        own["mode"] = spec.mode or own["mode"]
        own["slice"] = arguments.slice or own["slice"]
        own["golden"] = _golden(arguments, project, declared.name)
        yield dataclasses.replace(spec, **own)
    files = project.files()
    if not files and not project.runs:
        raise UsageError(f"nothing to run: gin_files = {list(project.gin_files)} match no file below {root}")
    for file in files:
        yield _spec_of_file(arguments, project, root, str(file.relative_to(root)))
