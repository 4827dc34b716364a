"""The resolve stage: the user's modules, the objects behind the bindings, and a look at the data."""

from __future__ import annotations

from t5x import utils

from t5x_harness.execute import checks
from t5x_harness.execute.checks import Check, Resolved
from t5x_harness.execute.datasets import TASKS, roles_of, sample_of, tasks_of
from t5x_harness.execute.errors import explain, log_traceback
from t5x_harness.execute.gin_config import GinConfig
from t5x_harness.execute.stage_report import StageReport
from t5x_harness.spec import Severity

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
            checks.unknown_task(role, config, report)
    if report.failed:
        return run
    _read(run, report)
    for check in Check.all():
        check().look(run, report)
    return run


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
        lengths = role.dataset.task_feature_lengths
        report.fact(
            f"{role.name} data",
            f"{role.source} {role.dataset.split}, lengths {dict(lengths) if lengths else 'of the longest example'}"
            f"{', packed' if role.dataset.pack else ''}{', cached' if role.dataset.use_cached else ''}",
        )
        for task in tasks[:TASKS]:
            if role.dataset.split.split("[")[0] not in task.splits and "+" not in role.dataset.split:
                continue
            key = (task.name, role.dataset.split, role.dataset.use_cached)
            if key not in read:
                try:
                    read[key] = sample_of(role, task)
                except Exception as error:  # the user's source or preprocessor; the next task may be well
                    log_traceback(error)
                    report.findings.append(explain(error, report.stage, run.config))
                    continue
                report.exercised += len(read[key].examples)
                if not read[key].examples:
                    where = role.key(run.config, "split")
                    report.find(
                        "SEQ36",
                        Severity.ERROR,
                        f"task {task.name} has no example in split {role.dataset.split!r}",
                        location=run.config.location(where),
                        fix="check the source's files and filters",
                    )
            run.samples[role.parameter, task.name] = read[key]
