"""``t5x-harness auxiliary``: a job for each checkpoint of a train job, started once the checkpoint is finished."""

import argparse
import contextlib
import dataclasses
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from t5x_harness.auxiliary.checking import plan_jobs
from t5x_harness.auxiliary.jobs import T5X_MAIN, AuxiliaryError, AuxiliaryRequest, JobBackend
from t5x_harness.auxiliary.journal import Status
from t5x_harness.auxiliary.processes import LocalJobs, Processes
from t5x_harness.auxiliary.vertex_jobs import VertexJobs
from t5x_harness.auxiliary.watching import Prepared, TrainCommand, patience_for, prepare, status_of, watch
from t5x_harness.buckets.folders import StorageError
from t5x_harness.commands import xmanager
from t5x_harness.commands.arguments import FOUND, UsageError, add_job_options, pairs, require_google_sdk
from t5x_harness.findings.printable import printable
from t5x_harness.findings.text import Style
from t5x_harness.report.json import json_text
from t5x_harness.report.terminal import finding_lines, run_failure
from t5x_harness.runtime.choice import RuntimeChoiceError
from t5x_harness.settings.command_line import add_option, configuration_of
from t5x_harness.settings.forms import count, duration, from_zero
from t5x_harness.settings.options import option_of
from t5x_harness.settings.project import find_project
from t5x_harness.slices.slice import SliceError
from t5x_harness.spec import DEFAULT_SLICE, Severity
from t5x_harness.vertex.arguments import OverrideError
from t5x_harness.vertex.container import FOUR_HOURS, JobOptions, JobOptionsError
from t5x_harness.vertex.emulated import uses_emulated_google
from t5x_harness.vertex.errors import VertexError
from t5x_harness.vertex.machine import Machine, MachineError
from t5x_harness.vertex.modules import ClosureError
from t5x_harness.vertex.submitted import SubmittedJob
from t5x_harness.vertex.target import (
    DEFAULT_MAX_CHIP_HOURS,
    EMULATED,
    FIELDS,
    VertexTarget,
    VertexTargetError,
    find_target,
)
from t5x_harness.vertex.waiting import Interrupts

_CELL = re.compile(r"[a-z]{2}")
_REPLACE = "--replace_gin_file"
_WIDTH = 120
_OPTION_NAMES = {"train_job": "--train_job", "max_chip_hours": option_of("max_chip_hours").shell[0]}
_TARGET = tuple(field for field in FIELDS if field not in ("experiment", "tensorboard"))  # evaluations have no run
EPILOG = """\
examples:
  t5x-harness auxiliary train.gin --auxiliary_job_mixtures=my_task --auxiliary_job_gin_file=eval.gin --replace_gin_file
                                                  evaluates each checkpoint of a train job as soon as it is finished
  t5x-harness auxiliary train.gin … -- t5x-harness exec -- python -m t5x.main --run_mode=train --gin_file=train.gin
                                                  starts that train job, too
  t5x-harness auxiliary train.gin --auxiliary_job_mixtures=my_task --auxiliary_job_gin_file=finetune.gin \\
    --replace_gin_file --final_auxiliary_job_steps=200
                                                  fine-tunes each checkpoint for 200 steps
  t5x-harness auxiliary train.gin … --on=vertex --auxiliary_job_platform=v3-8
                                                  the same as Vertex AI jobs, in a shell of serve emulated ones
  t5x-harness auxiliary train.gin … --status      how the jobs stand

Jobs that evaluate write into the train job's folder, so that TensorBoard shows their metrics beside its own; all others
have folders of their own below auxiliary/ there. The same command again goes on where a killed one was.

exit status: 0 all jobs succeeded, 1 one did not, or the request makes no sense, 2 wrong usage, 130 interrupted: jobs
that were started go on
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``auxiliary`` to a parser."""
    parser.usage = "t5x-harness auxiliary TRAIN_GIN [TRAIN_GIN …] [options] [-- TRAIN COMMAND …]"
    parser.add_argument("files", nargs="*", metavar="TRAIN_GIN", help="the gin files of the train job")
    parser.add_argument("--gin_file", action="append", default=[], metavar="FILE", help="the same, as T5X has it")
    for field in ("bindings", "search_paths", "python_path", "runtime", "tfds_data_dir"):
        add_option(parser, field)
    parser.add_argument(
        "--model_dir", metavar="DIR", help="the train job's folder (default: the one that its config names)"
    )
    parser.add_argument("--last_step", type=count, metavar="N", help="of the train job (default: its TRAIN_STEPS)")
    _add_jobs(parser.add_argument_group("the auxiliary jobs, as T5X's guide names them"))
    how = parser.add_argument_group("how they run")
    how.add_argument("--name", default="", help="tells them apart from others of this train job (default: FILE's name)")
    how.add_argument("--at_once", type=count, default=1, metavar="N", help="the most that run at a time (default: 1)")
    how.add_argument(
        "--skip_to_newest", action="store_true", help="where several checkpoints wait, pass over all but the newest"
    )
    how.add_argument(
        "--priority",
        choices=("usual", "low"),
        default="usual",
        help="low lets others go first: nice here, Spot machines on Vertex AI (default: usual)",
    )
    how.add_argument("--retry_failed", action="store_true", help="start jobs again that have failed before")
    how.add_argument("--once", action="store_true", help="for the checkpoints that are finished now, and wait for none")
    how.add_argument(
        "--no-plan", action="store_true", help="start them without having planned one for each mixture on their slice"
    )
    how.add_argument("--status", action="store_true", help="show how the jobs stand, and start none")
    how.add_argument("--json", action="store_true", help="print how they stand as JSON")
    xmanager.add_arguments(how)
    _add_vertex(parser.add_argument_group("on Vertex AI"))


def _add_jobs(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--auxiliary_job_mixtures",
        action="append",
        default=[],
        metavar="TASK,TASK",
        help="tasks or mixtures; each has a job of its own for each checkpoint",
    )
    group.add_argument(
        "--auxiliary_job_gin_file", action="append", default=[], metavar="FILE", help="as --gin_file, of the jobs"
    )
    group.add_argument(
        "--auxiliary_job_binding", action="append", default=[], metavar="'NAME = VALUE'", help="a binding of the jobs"
    )
    group.add_argument(
        _REPLACE,
        action="store_true",
        help="leave the train job's gin files out, as jobs that do not train have to",
    )
    group.add_argument(
        "--final_auxiliary_job_steps",
        type=from_zero,
        default=0,
        metavar="N",
        help="train steps of each job beyond those of its checkpoint; 0 to evaluate (default: 0)",
    )
    group.add_argument(
        "--auxiliary_job_platform",
        type=xmanager.platform,
        default=DEFAULT_SLICE,
        metavar="SLICE",
        help="their TPU slice, as v3-32, jf_2x2, TPU_V3:32 in cores, or gcloud's keys, as "
        f"machine-type=ct5lp-hightpu-4t,tpu-topology=4x4 (default: {DEFAULT_SLICE})",
    )
    group.add_argument(
        "--auxiliary_job_cell",
        metavar="REGION",
        help="with --on=vertex the same as --location; processes of this machine have none",
    )
    group.add_argument(
        "--auxiliary_job_build_target",
        "--auxiliary_job_build_target_path",
        default=T5X_MAIN,
        metavar="MODULE",
        help=f"what they run, such as t5x.eval or a module of your own (default: {T5X_MAIN})",
    )


def _add_vertex(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--on",
        choices=("here", "vertex"),
        default="here",
        help="as processes of this machine, or there (default: here)",
    )
    for field in _TARGET:
        add_option(group, field)
    group.add_argument("--timeout", type=duration, metavar="TIME", help="when one is ended (default: 4h)")
    group.add_argument("--label", action="append", default=[], metavar="NAME=VALUE", help="label of the jobs")
    group.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="variable of their containers")
    add_option(group, "max_chip_hours")
    add_job_options(group)
    group.add_argument("--train_job", metavar="JOB", help="the train job's name or number: when it ends, these do")


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns the command's own arguments, and the train job's command, which follows ``--``.

    Raises:
      UsageError: ``--replace_gin_file`` is given a value that is neither True nor False.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    own = []
    for argument in arguments[:end]:
        name, equals, value = argument.partition("=")
        if not (name == _REPLACE and equals):
            own.append(argument)
        elif value.lower() not in ("true", "false"):
            raise UsageError(f"{argument}: it must be True or False")
        elif value.lower() == "true":
            own.append(_REPLACE)  # T5X's guide gives it a value, and argparse would read the next word as one
    return own, [*arguments[end + 1 :]]


def main(args: argparse.Namespace) -> int:
    """Checks the arguments, then starts and follows jobs.

    Raises:
      UsageError: the arguments are wrong.
      ProjectError: pyproject.toml has a mistake in it.
    """
    try:
        unused = xmanager.not_used(args)
        if args.on == "here" and args.auxiliary_job_cell:
            unused.append(f"--auxiliary_job_cell={args.auxiliary_job_cell}")
        if unused:
            _say(f"not used: {', '.join(unused)}, of XManager's clusters; jobs run on this machine or with --on=vertex")
        prepared = prepare(_request(args))
        project = args.project
        if args.status:
            return _show(status_of(prepared, project), args)
        for finding in prepared.findings:
            print("\n".join(finding_lines(finding, width=_WIDTH, style=Style())), file=sys.stderr)
        if any(finding.severity is Severity.ERROR for finding in prepared.findings):
            _say("nothing was started")
            return FOUND
        with contextlib.redirect_stdout(sys.stderr):  # Google's SDK prints its progress there
            status = _watched(args, prepared, project)
        return _show(status, args)
    except (AuxiliaryError, StorageError, VertexError) as error:
        _say(str(error))
        return FOUND
    except (
        ClosureError,
        JobOptionsError,
        MachineError,
        OverrideError,
        RuntimeChoiceError,
        SliceError,
        VertexTargetError,
    ) as error:
        raise UsageError(str(error)) from None


def _watched(args: argparse.Namespace, prepared: Prepared, project: str | None) -> Status:
    backend, has_ended = _backend(args, prepared)
    command = None
    if args.train_command:
        command = TrainCommand(args.train_command, Processes(prepared.job_folder))
    elif prepared.train.last_step is None and not (args.train_job or args.once):
        raise UsageError(
            "the train job's config does not say at which step it ends: give --last_step=N, --train_job=JOB, --once, "
            "or its command after --"
        )
    _require_plans(args, prepared)
    interrupts = Interrupts()
    interrupts.begin()  # a Ctrl-C during the work of Google's libraries is not lost
    try:
        return watch(
            prepared,
            backend,
            say=_say,
            train_command=command,
            train_has_ended=has_ended,
            patience=patience_for(prepared, interrupts.raise_pending),
            retry_failed=args.retry_failed,
            project=project,
        )
    except KeyboardInterrupt:
        interrupts.forget()
        for line in _going_on(status_of(prepared, project), command):
            _say(line)
        raise
    finally:
        interrupts.end()


def _going_on(status: Status, command: TrainCommand | None) -> Iterator[str]:
    where = command.processes.find(command.name) if command is not None else None
    if command is not None and where is not None and command.processes.status(where).running:
        yield f"interrupted; the train job goes on: {where}"
    for record in status.running:
        yield f"interrupted; checkpoint_{record.step}, {record.mixture} goes on: {record.job}"
    yield "the same command again goes on from here"


def _backend(args: argparse.Namespace, prepared: Prepared) -> tuple[JobBackend, Callable[[], bool]]:
    """Returns where jobs run, and a function that returns whether there will be no further checkpoint."""
    if args.on == "here":
        _require_no_options_of_jobs(args)
        return LocalJobs(prepared.request, prepared.job_folder), lambda: args.once
    options = JobOptions.of(vars(args))
    require_google_sdk()
    given = {name: getattr(args, name) for name in _TARGET}
    if cell := args.auxiliary_job_cell:
        if _CELL.fullmatch(cell):
            raise UsageError(
                f"--auxiliary_job_cell={cell} is a cell of Google's own clusters: give a region of Vertex AI, such as "
                "us-central1, or leave it out"
            )
        if given["location"] not in (None, cell):
            raise UsageError(f"--auxiliary_job_cell={cell} and --location={given['location']}: give one of them")
        given["location"] = cell
    target = find_target(given, os.environ, find_project(Path.cwd()).vertex, EMULATED if uses_emulated_google() else {})
    jobs = VertexJobs(
        prepared.request,
        target,
        args.timeout or FOUR_HOURS,
        pairs(args.env, "--env"),
        pairs(args.label, "--label"),
        options,
        args.max_chip_hours or DEFAULT_MAX_CHIP_HOURS,
    )
    step = prepared.train.last_step or 1
    mixture = prepared.request.mixtures[0]
    jobs.check(prepared.template.job(f"{prepared.train.model_dir}/checkpoint_{step}", step, mixture))
    return jobs, lambda: args.once or bool(args.train_job and _has_ended(args.train_job, target))


def _require_no_options_of_jobs(args: argparse.Namespace) -> None:
    """Refuses options that only jobs on Vertex AI have, except the project, which the train job's bucket may need."""
    options = [field.name for field in dataclasses.fields(JobOptions)]
    names = [*_TARGET, *options, "timeout", "label", "env", "max_chip_hours", "train_job"]
    given = [name for name in names if getattr(args, name) and name != "project"]
    if given:
        named = ", ".join(_OPTION_NAMES.get(name, f"--{name.replace('_', '-')}") for name in given)
        raise UsageError(f"{named}: that is of jobs on Vertex AI: give --on=vertex, or leave it out")


def _require_plans(args: argparse.Namespace, prepared: Prepared) -> None:
    """Plans the jobs on their slice, or reports that this is not requested or not possible."""
    request = prepared.request
    why = (
        "--no-plan"
        if args.no_plan
        else f"{request.module} is not T5X's"
        if prepared.template.mode is None
        else f"{request.platform} is not a TPU slice"
        if Machine.parse(request.platform).slice is None
        else ""
    )
    if why:
        _say(f"not checked: the plan of the jobs ({why})")
        return
    failed = [result for result in plan_jobs(prepared.template, prepared.train.last_step) if not result.passed]
    if failed:
        for result in failed:
            print(run_failure(result, width=_WIDTH), file=sys.stderr)
        raise AuxiliaryError("nothing was started: fix what was found, or give --no-plan")


def _has_ended(train_job: str, target: VertexTarget) -> bool:
    try:
        return SubmittedJob.attach(train_job, target).has_ended
    except VertexError as error:
        if error.passing:
            return False
        raise


def _request(args: argparse.Namespace) -> AuxiliaryRequest:
    files = [*args.files, *args.gin_file]
    if not files:
        raise UsageError("no TRAIN_GIN: name the gin files of the train job whose checkpoints the jobs are for")
    cwd = Path.cwd()
    configuration = configuration_of(vars(args), find_project(cwd), os.environ, cwd, cwd)
    return AuxiliaryRequest(
        configuration.spec(files).with_settings(model_dir=None),
        tuple(each.strip() for text in args.auxiliary_job_mixtures for each in text.split(",") if each.strip()),
        tuple(args.auxiliary_job_gin_file),
        replace_gin_file=args.replace_gin_file,
        final_steps=args.final_auxiliary_job_steps,
        platform=args.auxiliary_job_platform,
        module=args.auxiliary_job_build_target,
        bindings=tuple(args.auxiliary_job_binding),
        model_dir=args.model_dir,
        name=args.name,
        at_once=args.at_once,
        skip_to_newest=args.skip_to_newest,
        last_step=args.last_step,
        low_priority=args.priority == "low",
    )


def _show(status: Status, args: argparse.Namespace) -> int:
    print(json_text(status.values()) if args.json else printable(status.text()))
    return 0 if status.succeeded else FOUND


def _say(text: str) -> None:
    print(printable(f"t5x-harness auxiliary: {text}"), file=sys.stderr, flush=True)
