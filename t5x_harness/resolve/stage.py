"""The resolve stage: imports the user's modules, builds the objects behind the bindings, and samples the data."""

from __future__ import annotations

import dataclasses

from t5x import utils

from t5x_harness.findings.stage_report import StageReport
from t5x_harness.gin.config import GinConfig
from t5x_harness.resolve.datasets import DataRole, roles_of, tasks_of
from t5x_harness.resolve.description import describe
from t5x_harness.resolve.early_metrics import call_metrics
from t5x_harness.resolve.explanation import explain, log_traceback
from t5x_harness.resolve.known_errors import reword
from t5x_harness.resolve.output_folder import unseen
from t5x_harness.resolve.registrations import Registrations
from t5x_harness.resolve.resolved import Resolved
from t5x_harness.resolve.rules import RULES
from t5x_harness.resolve.sampling import sample_data
from t5x_harness.slices.slice import Slice
from t5x_harness.spec import READ_SECONDS
from t5x_harness.standins.run import StandIns
from t5x_harness.standins.task_data import out_of_reach, splits_of

_OF_NAMES = ("SEQ04", "SEQ31", "SEQ32", "SEQ34")
"""Rules that need only a task's name and source, and so judge even data that cannot be read here."""


def resolve(
    config: GinConfig,
    slice_: Slice,
    registrations: Registrations,
    standins: StandIns,
    report: StageReport,
    read_seconds: float = READ_SECONDS,
) -> Resolved:
    """Builds what the config names and samples its data.

    Args:
      config: the parsed config, at full size.
      slice_: the slice whose hosts are going to read the data.
      registrations: where the tasks were registered.
      standins: what takes the place of data that is not here.
      report: gets facts, findings and what could not be judged.
      read_seconds: how long to read each split.

    Raises:
      Exception: the model or a dataset's configuration cannot be built.
    """
    report.fact("mode", config.mode)
    report.not_checked += config.program.clone_doubts
    if not _complete(config, report):
        return Resolved(config, None, standins, registrations)
    config.finalize()
    run = Resolved(config, config.build("model"), standins, registrations, roles_of(config))
    report.fact("model", f"{type(run.model).__name__}, {type(run.model.module).__name__}" if run.model else "none")
    for role in run.roles:
        if not _import(role, config, report):
            return run
        try:
            run.tasks[role.parameter] = tasks_of(role)
        except ValueError as error:
            known = reword([str(error)])
            if known is None or known.code != "SEQ04":  # the rule of that code reports it
                raise
        standins.take_places(role.dataset, run.tasks.get(role.parameter, ()))
        key = role.key(config, "mixture_or_task_name")
        for asked in standins.take_requests():
            report.find("RUN09", asked.message, location=config.location(key), fix=asked.fix)
    named = all(role.parameter in run.tasks for role in run.roles)
    if named and all(splits_of(task) for _, task in run.reads()):
        report.attempt(sample_data, run, report, read_seconds)
        report.attempt(call_metrics, run, report)
        report.not_checked += unseen(config)
        report.attempt(describe, run, slice_, report)
        _apply(run, report)
    else:
        _apply(run, report, _OF_NAMES)
        _say_why_not(run, report)
    return run


def _import(role: DataRole, config: GinConfig, report: StageReport) -> bool:
    """Imports the module that a dataset's config names; returns whether that succeeded."""
    if not role.dataset.module:
        return True
    try:
        utils.import_module(role.dataset.module)
    except Exception as error:  # whatever the user's module raises
        log_traceback(error)
        finding = explain(error, report.stage, config)
        key = role.key(config, "module")
        if finding.code == "GIN22":
            finding = dataclasses.replace(
                finding,
                message=f"{role.dataset.module} registers Gin configurables, and T5X imports it only after the config "
                "was parsed",
                fix=f"write `import {role.dataset.module}` in the gin file, and "
                f"{config.owner(key).short if key else 'MIXTURE_OR_TASK_MODULE'} = None",
            )
        if finding.code == "GIN22" or finding.location is None:  # the fix is where the module is named
            finding = dataclasses.replace(finding, location=config.location(key), binding=key.short if key else None)
        report.end(finding)
        return False
    return True


def _say_why_not(run: Resolved, report: StageReport) -> None:
    """Reports tasks whose splits are not known, unless a rule has.

    Raises:
      Exception: what the task's source raises when it is asked for them.
    """
    for role, task in run.reads():
        if not splits_of(task) and not report.failed:
            remote = out_of_reach(task, role.dataset.split)
            if not remote:
                task.splits  # noqa: B018 (it raises)
            report.not_checked.append(f"the data of {task.name}: {remote[0]} cannot be read here")


def _apply(run: Resolved, report: StageReport, codes: tuple[str, ...] = ()) -> None:
    for rule in RULES:
        if not codes or rule.code in codes:
            report.attempt(lambda rule=rule: report.add(rule.findings(run, run.config.place)))
    report.end_attempts()


def _complete(config: GinConfig, report: StageReport) -> bool:
    """Tells whether every required value is bound; all that are missing are reported together."""
    for key in config.missing():
        report.find(
            "GIN03",
            f"{key.short} is required and has no value",
            location=config.location(key),
            fix=f"bind {key.short} in the file or with the run",
            binding=key.short,
        )
    if "model" not in config.entry_bindings():
        report.find(
            "GIN03",
            f"{config.entry.removeprefix('__main__.')} needs model, and nothing binds it",
            fix="include a run config such as t5x/configs/runs/pretrain.gin, or bind it",
        )
    return not report.failed
