"""``t5x-harness submit``: sends runs as Vertex AI jobs, which are first checked here."""

import argparse
import contextlib
import dataclasses
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from t5x_harness.buckets.folders import Folder, StorageError
from t5x_harness.commands.arguments import (
    UsageError,
    add_job_options,
    add_run_arguments,
    pairs,
    require_google_sdk,
    specs_of,
)
from t5x_harness.commands.parsing import given_in
from t5x_harness.commands.shells import root_of
from t5x_harness.commands.submit_output import PrintedBatch, SubmitOutput
from t5x_harness.execute import program_setup
from t5x_harness.runtime.choice import RuntimeChoiceError
from t5x_harness.settings.command_line import add_to_command, from_environment
from t5x_harness.settings.forms import duration
from t5x_harness.settings.options import JOBS, option_of
from t5x_harness.settings.project import find_project
from t5x_harness.spec import Mode, RunSpec, StandInPolicy
from t5x_harness.vertex.arguments import OverrideError, RunMode, RunModeError, output_macro_of
from t5x_harness.vertex.closure import unstaged_files
from t5x_harness.vertex.container import FOUR_HOURS, JobOptions, JobOptionsError
from t5x_harness.vertex.emulated import emulated_google, uses_emulated_google
from t5x_harness.vertex.errors import JobNameError, VertexError
from t5x_harness.vertex.job import JobError, T5XJob
from t5x_harness.vertex.job_rules import verdict_of
from t5x_harness.vertex.machine import ChipHoursError, Machine, MachineError
from t5x_harness.vertex.modules import ClosureError
from t5x_harness.vertex.target import (
    DEFAULT_MAX_CHIP_HOURS,
    EMULATED,
    FIELDS,
    PLACEHOLDERS,
    VertexTarget,
    VertexTargetError,
    find_target,
)

_OPTIONS = {
    "labels": "--label",
    "machine_spec": "--accelerator",
    "image_uri": "--image",
    "display_name": "--name",
}
"""The options of fields that have other names in a job's message."""
_SERVICES, _SERVICE_VARIABLE = option_of("vertex").choices, option_of("vertex").variable
_SMALL = (
    "the emulated Vertex AI runs jobs on this machine's CPU: small, with a few steps, as t5x-harness run does; the "
    "log says what was changed. --full-size runs them at the sizes and for the steps that the config names"
)
_FULL_SIZE = "the emulated Vertex AI runs jobs on this machine's CPU, at full size (--full-size): that may take long"
EPILOG = """\
examples:
  t5x-harness submit finetune.gin --run_mode=train --accelerator=v3-8 --dry-run
                                                  what would be sent, and staged, and what it may cost
  t5x-harness submit finetune.gin --accelerator=v3-32 --timeout=6h --tpu-max-chip-hours=96
                                                  checks it, sends it, and shows its log until it ends
  t5x-harness submit finetune.gin --accelerator=v3-8 --no-wait --gin.TRAIN_STEPS=1_001_000
  t5x-harness submit --attach=1234567890          follows a job that was sent before
  t5x-harness submit finetune.gin --accelerator=v3-8 --vertex=emulated --gcs-root=buckets
                                                  the whole way, on this machine and at no cost

Project, region, bucket and image come from options, from T5X_HARNESS_VERTEX_PROJECT and so on, or from
[tool.t5x_harness.vertex] of pyproject.toml. Gin files, all that they include, and the modules of yours that they import
are staged in the bucket; what belongs to T5X is left to the image.

Before anything is sent: lint, the plan on the slice, whether the programs fit it (--aot), the rules of Vertex AI, the
chip-hours until --timeout, and whether the same job runs already. Ctrl-C while waiting cancels the job.

exit status: 0 the job succeeded (with --no-wait: was sent; with --dry-run: could be), 1 it did not, or was not sent,
2 wrong usage
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``submit`` to a parser."""
    groups = add_run_arguments(parser, "submit")
    add_to_command(parser, JOBS, "submit", groups)
    job, where, what = groups["the job"], groups["where it goes"], groups["what to do"]
    job.add_argument(
        "--timeout",
        type=duration,
        default=FOUR_HOURS,
        metavar="TIME",
        help="when Vertex AI ends it, as 90m, 6h or 2d (default: 4h)",
    )
    job.add_argument("--name", help="name of the run (default: that of the gin file)")
    job.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="variable of the container")
    job.add_argument("--label", action="append", default=[], metavar="NAME=VALUE", help="label of the job")
    add_job_options(parser.add_argument_group("how Vertex AI runs it"))
    what.add_argument(
        "--full-size",
        dest="job_full_size",
        action="store_true",
        help="with the emulated Vertex AI: run the job at the sizes and for the steps that the config names, on this "
        "machine's CPU (default: small, as t5x-harness run does)",
    )
    where.add_argument(
        "--google-root", metavar="DIR", help="with --vertex=emulated: folder that keeps the buckets (default: none)"
    )
    what.add_argument("--no-check", action="store_true", help="send it without lint and plan")
    what.add_argument("--duplicate", action="store_true", help="send it although the same job runs")
    what.add_argument(
        "--wait", action=argparse.BooleanOptionalAction, default=True, help="wait until it has ended (default: wait)"
    )
    what.add_argument("--attach", metavar="JOB", help="follow this job, by its name or number, and send none")


def targets_emulated_google(args: argparse.Namespace) -> bool:
    """Returns whether jobs go to an emulated Google Cloud on this machine instead of Google's own.

    Raises:
      UsageError: the arguments contradict each other, or the environment in which the command runs.
    """
    here = uses_emulated_google()
    service = args.vertex or os.environ.get(_SERVICE_VARIABLE) or ("emulated" if here else "real")
    if service not in _SERVICES:
        raise UsageError(f"{_SERVICE_VARIABLE} is {service!r}: it is real or emulated")
    if service == "real" and here:
        raise UsageError(
            "--vertex=real, but this shell's Google clients use an emulated Google Cloud: use a shell without the "
            "variables of t5x-harness serve"
        )
    if args.attach and (args.files or args.gin_file or args.dry_run):
        raise UsageError("--attach follows a job that was sent: leave out FILE, --gin_file and --dry-run")
    own = service == "emulated" and not here
    if own and args.attach:
        raise UsageError("--attach finds no job in a new emulated Google Cloud: start one with t5x-harness serve")
    if own and not args.wait:
        raise UsageError(
            "--no-wait: the emulated Google Cloud of --vertex=emulated ends with this command, and its jobs with it; "
            "start one with t5x-harness serve"
        )
    if args.google_root and not own:
        raise UsageError(
            "--google-root is for the emulated Google Cloud of --vertex=emulated, and none is started here"
        )
    if args.job_full_size and service != "emulated":
        raise UsageError("--full-size is for --vertex=emulated: Google's Vertex AI runs every job at its full size")
    require_google_sdk()
    return service == "emulated"


def target_of(args: argparse.Namespace, emulated: bool) -> VertexTarget:
    """Returns where jobs go.

    Args:
      args: the parsed arguments.
      emulated: the result of :func:`targets_emulated_google`; if True, every value has a default.

    Raises:
      UsageError: values are missing, in which case the message names all of them; or one is wrong.
      ProjectError: pyproject.toml has a mistake in it.
    """
    project = find_project(Path.cwd())
    given = {name: getattr(args, name) for name in FIELDS}
    try:
        otherwise = EMULATED if emulated else PLACEHOLDERS if args.dry_run else {}
        return find_target(given, os.environ, project.vertex, otherwise)
    except VertexTargetError as error:
        options = ", ".join(f"--{name}" for name in error.missing)
        hint = "; without a cloud: --vertex=emulated, or --dry-run, which shows the job with placeholders"
        raise UsageError(f"{error}; or give {options}{hint}" if options else str(error)) from None


def jobs_of(args: argparse.Namespace, target: VertexTarget) -> list[T5XJob]:
    """Returns a job for each run, after reading all files that it needs from this machine.

    Raises:
      UsageError: there is no run, or one cannot be a job.
      ProjectError: pyproject.toml has a mistake in it.
    """
    try:
        mode = RunMode.parse(args.mode) if args.mode else None
        shared = argparse.Namespace(**{**vars(args), "model_dir": None, "mode": None})  # these two belong to the job
        specs = specs_of(shared, Path.cwd())
        jobs = [_job(args, spec, mode, target) for spec in specs]
        for job in jobs:
            job.to_pb()
        _require_own_folders(jobs)
    except MachineError as error:
        raise UsageError(f"--accelerator: {error}" if args.tpu else str(error)) from None
    except (ClosureError, JobError, JobOptionsError, OverrideError, RunModeError, RuntimeChoiceError) as error:
        raise UsageError(str(error)) from None
    return jobs


def _require_own_folders(jobs: Sequence[T5XJob]) -> None:
    """Refuses two runs in one folder, because the second would continue from the first one's checkpoints."""
    taken: dict[str, T5XJob] = {}
    for job in jobs:
        other = taken.setdefault(job.model_dir, job)
        if other is not job:
            raise UsageError(
                f"{other.name} and {job.name} would both write into {job.model_dir}: give each run its own folder, "
                "or leave it out"
            )


def as_emulated(job: T5XJob, args: argparse.Namespace) -> T5XJob:
    """Returns a job for the emulated Vertex AI: its programs use stand-ins, and are small without --full-size."""
    run = job.run
    project = str(find_project(Path(run.cwd)).root) if run.settings.standins is not StandInPolicy.OFF else ""
    own = program_setup.variables(project, shrink=not args.job_full_size)
    return dataclasses.replace(job, env={**own, **job.env})


def _job(args: argparse.Namespace, spec: RunSpec, mode: RunMode | None, target: VertexTarget) -> T5XJob:
    if args.tpu and args.slice:
        raise UsageError("--accelerator and --slice at once: --accelerator says what to run and to check on")
    machine = Machine.parse(args.tpu or spec.slice)
    if machine.slice is not None:
        spec = dataclasses.replace(spec, slice=machine.slice.name)
    job = T5XJob(
        run=spec,
        target=target,
        machine=machine,
        run_mode=mode or RunMode.TRAIN,
        timeout=args.timeout,
        name=args.name or "",
        env=pairs(args.env, "--env"),
        labels=pairs(args.label, "--label"),
        options=JobOptions.of(vars(args)),
    )
    if mode is None:
        seen = job.closure.program.mode
        if seen is None:
            raise UsageError(f"{spec.name}: it binds none of train, evaluate and infer: say what to do by --run_mode")
        job = dataclasses.replace(job, run_mode=RunMode(seen.value))
    if args.model_dir:
        named = f'{output_macro_of(job.run_mode)} = "{args.model_dir}"'
        job = dataclasses.replace(job, run=dataclasses.replace(job.run, bindings=(*job.run.bindings, named)))
    return job


def main(args: argparse.Namespace) -> int:
    """Checks, sends and follows jobs.

    Returns:
      0 if all is well, 1 if a job was refused or failed.

    Raises:
      UsageError: the arguments are wrong; nothing was sent.
      ProjectError: pyproject.toml has a mistake in it.
    """
    from t5x_harness.google.server.settings import ServerError

    emulated = targets_emulated_google(args)
    target = target_of(args, emulated)
    jobs = [] if args.attach else jobs_of(args, target)
    output = SubmitOutput(args, sys.stdout)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # Google's SDK prints its progress there
            if not args.attach:
                return _submitted(args, jobs, emulated, output)
            with _google(args, emulated), PrintedBatch(output, waits=args.wait) as batch:
                batch.attach(args.attach, target)
                return batch.finish()
    except JobNameError as error:
        raise UsageError(f"--attach: {error}") from None
    except (ChipHoursError, ServerError, StorageError, VertexError) as error:
        output.note(str(error))
        return 1
    finally:
        output.close()


def _submitted(args: argparse.Namespace, jobs: Sequence[T5XJob], emulated: bool, output: SubmitOutput) -> int:
    """Takes jobs from their checks to their ends; returns the exit status."""
    verdicts = [verdict_of(job) for job in jobs]
    refused = [
        f"{job.name}: Vertex AI refuses this job: {_option_at(violation.field, args)}{violation}"
        for job, verdict in zip(jobs, verdicts, strict=True)
        for violation in verdict.violations
    ]
    if refused:
        raise UsageError("\n".join(refused))
    for job in jobs:
        job.chip_hours.require(args.max_chip_hours or DEFAULT_MAX_CHIP_HOURS)
    for job, verdict in zip(jobs, verdicts, strict=True):
        output.job(job, verdict)
    if not _passes_checks(args, jobs, output):
        output.note("nothing was sent: fix what was found, or send it as it is with --no-check")
        return 1
    if args.dry_run:
        output.note("nothing was sent: --dry-run")
        return 0
    if emulated:
        output.note(_FULL_SIZE if args.job_full_size else _SMALL)
        jobs = [as_emulated(job, args) for job in jobs]
    with _google(args, emulated):
        if emulated:
            target = jobs[0].target
            Folder(f"gs://{target.bucket}", target.project).create_bucket(target.location)
        with PrintedBatch(output, waits=args.wait) as batch:
            for job in jobs:
                batch.launch(job, duplicate=args.duplicate)
            return batch.finish()


def _option_at(field: str, args: argparse.Namespace) -> str:
    """Returns the given option that sets a field of a job's message, and a colon; empty if none does."""
    given = {name for name, _ in given_in(args).values()}
    options = (_OPTIONS.get(name, f"--{name.replace('_', '-')}") for name in re.split(r"\W+", field))
    return next((f"{option}: " for option in options if option in given), "")


def _passes_checks(args: argparse.Namespace, jobs: Sequence[T5XJob], output: SubmitOutput) -> bool:
    """Runs lint and plan; returns whether they found no error."""
    if args.no_check:
        output.note("not checked: lint and plan (--no-check)")
        return True
    plannable = [job for job in jobs if job.run_mode is not RunMode.PRECOMPILE and job.machine.slice]
    for job in jobs:
        if job not in plannable:
            why = "precompile" if job.run_mode is RunMode.PRECOMPILE else f"{job.machine} is not a TPU slice"
            output.note(f"not checked: lint and plan of {job.name} ({why})")
    specs = [dataclasses.replace(job.run, mode=Mode(job.run_mode.value)) for job in plannable]
    if not specs:
        return True
    from t5x_harness.runs.job import aot_mode
    from t5x_harness.runs.pool import plan_specs

    given = {**vars(args), **from_environment([option_of("tpu_aot")], vars(args), os.environ)}
    aot, why = aot_mode(given["tpu_aot"], full_size=True)
    if why:
        output.note(f"not checked: whether the programs fit: {why}")
    results = plan_specs(specs, aot, keep=not args.no_keep)
    passed = output.checks(results)
    for job, result in zip(plannable, results, strict=True):
        for file in unstaged_files(job.closure, result):
            output.note(f"{job.name}: not staged: {file}")
    return passed


def _google(args: argparse.Namespace, emulated: bool) -> contextlib.AbstractContextManager[None]:
    """Redirects Google's clients to an emulated Google Cloud during the block, if jobs go to one."""
    if not emulated:
        return contextlib.nullcontext()
    root = root_of(args.google_root, "--google-root")
    return emulated_google(str(root) if root else None, args.gcs_root)
