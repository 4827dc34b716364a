"""The resolve stage: the user's modules, the objects behind the bindings, and a look at the data."""

from __future__ import annotations

from t5x import utils

from t5x_harness.resolve.datasets import TASKS, roles_of, sample_of, tasks_of
from t5x_harness.resolve.description import describe
from t5x_harness.resolve.errors import explain, log_traceback
from t5x_harness.resolve.gin_config import GinConfig
from t5x_harness.resolve.resolved import Resolved
from t5x_harness.resolve.rule import ResolveRule
from t5x_harness.resolve.stage_report import StageReport
from t5x_harness.rule import all_rules
from t5x_harness.spec import Severity, Stage

__all__ = ["resolve"]


def resolve(config: GinConfig, report: StageReport) -> Resolved:
    """Builds what the config names and samples its data.

    Args:
      config: the parsed config, at full size.
      report: gets facts, findings and what could not be judged.

    Raises:
      Exception: the model or a dataset's configuration cannot be built.
    """
    report.fact("mode", config.mode)
    if not _complete(config, report):
        return Resolved(config, None)
    config.finalize()
    run = Resolved(config, config.build("model"), roles_of(config))
    report.fact("model", f"{type(run.model).__name__}, {type(run.model.module).__name__}" if run.model else "none")
    for role in run.roles:
        if role.dataset.module:
            utils.import_module(role.dataset.module)
        try:
            run.tasks[role.parameter] = tasks_of(role)
        except ValueError as error:
            if "No Task or Mixture found" not in str(error):
                raise
    if all(role.parameter in run.tasks for role in run.roles):
        _read(run, report)
        describe(run, report)
        _apply(run, report)
    else:
        _apply(run, report, only="SEQ04")  # nothing else can be said of a run whose tasks are unknown
    return run


def _apply(run: Resolved, report: StageReport, only: str | None = None) -> None:
    for rule in all_rules(Stage.RESOLVE):
        if issubclass(rule, ResolveRule) and only in (None, rule.code):
            report.add(rule().check(run))


def _complete(config: GinConfig, report: StageReport) -> bool:
    """Whether every required value is there; all that are missing are reported together."""
    for key in config.missing():
        report.find(
            "GIN03",
            Severity.ERROR,
            f"{key.short} is required and has no value",
            location=config.location(key),
            fix=f"bind {key.short} in the file or with the run",
            binding=key.short,
        )
    unbound = [name for name in ("model",) if name not in config.entry_bindings()]
    for name in unbound:
        report.find(
            "GIN03",
            Severity.ERROR,
            f"{config.entry.removeprefix('__main__.')} needs {name}, and nothing binds it",
            fix="include a run config such as t5x/configs/runs/pretrain.gin, or bind it",
        )
    return not report.failed


def _read(run: Resolved, report: StageReport) -> None:
    """Samples every task of every role whose split exists, each task and split once."""
    read = {}
    for role in run.roles:
        tasks = run.tasks[role.parameter]
        if len(tasks) > TASKS:
            left = ", ".join(t.name for t in tasks[TASKS : TASKS + 3])
            report.not_checked.append(f"{len(tasks) - TASKS} more tasks of {role.source}: {left}, ...")
        for task in tasks[:TASKS]:
            if role.dataset.split.split("[")[0] not in task.splits and "+" not in role.dataset.split:
                continue
            key = (task.name, role.dataset.split, role.dataset.use_cached)
            if key not in read:
                try:
                    read[key] = sample_of(role, task)
                except Exception as error:  # the user's source or preprocessor; the next task may be well
                    log_traceback(error)
                    report.add([explain(error, report.stage, run.config)])
                    continue
                report.exercised += len(read[key].examples)
            run.samples[role.parameter, task.name] = read[key]
