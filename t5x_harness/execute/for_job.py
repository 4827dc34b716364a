"""What a run's process knows that a job needs to make the same run elsewhere."""

from __future__ import annotations

from typing import Any

from t5x_harness.execute.execution import Execution
from t5x_harness.execute.sandbox import output_key
from t5x_harness.execute.shrink import as_gin
from t5x_harness.findings.stage_report import StageReport
from t5x_harness.gin.config import BindingKey, GinConfig
from t5x_harness.plan.checkpoint_source import find_initial
from t5x_harness.spec import Change, Mode, Reason, Stage


def prepare_job(run: Execution, shrink: bool, steps: int | None, standins: bool) -> dict[str, Any]:
    """Returns what a job that makes a planned run binds beside its config.

    Args:
      run: the run.
      shrink: whether the job runs at the sizes that the stages here have.
      steps: train steps of the job; None for those of the config, or for few if it is shrunk.
      standins: whether a checkpoint that cannot be read here is generated at the config's sizes, too; for a shrunk run
        one always is.

    Returns:
      ``prepared``, a StageResult with the changes; ``output``, the binding of the folder that the run writes into: its
      ``name``, as the command line takes it, and ``address``, the ``gs://`` or ``/gcs/`` folder that the config itself
      names, both empty if there is none; and ``first_step``, the step that training starts from, or 0.
    """

    def prepare(run: Execution, report: StageReport) -> None:
        if shrink or standins:
            # The job has the slice itself.
            sized = run.spec.with_settings(full_size=not shrink, full_mesh=True)
            run.prepared(report, sized, in_bucket=False, steps=steps)
        if steps is not None and not shrink:
            assert run.config is not None
            report.changes += limit_steps(run.config, steps)
        report.exercised = 1

    prepared = run.run(Stage.PLAN, prepare)
    config, name, address, first = run.config, "", "", 0
    if config is not None and run.output is not None:
        name, address = output_key(config).short, run.output.address if run.output.is_in_bucket else ""
    if run.small is not None:
        first = run.small.first_step
    elif config is not None and config.mode is Mode.TRAIN:
        first = find_initial(config).step or 0
    return {"prepared": prepared, "output": {"name": name, "address": address}, "first_step": first}


def limit_steps(config: GinConfig, steps: int) -> list[Change]:
    """Binds the train steps of a run, counted from the checkpoint that it starts from.

    Args:
      config: the parsed config; changed.
      steps: how many.

    Returns:
      What was changed; nothing if the config does not train, or already trains as many.

    Raises:
      ValueError: the step that the run starts from is not known, so its last one cannot be.
    """
    if config.mode is not Mode.TRAIN:
        return []
    relative = config.owner(BindingKey("", config.entry, "relative_steps"))
    if isinstance(config.value(relative), int):
        return _bound(config, relative, steps)
    start = find_initial(config)
    if start.path is not None and start.step is None:
        raise ValueError(
            f"steps={steps} counts from the checkpoint that training starts from, and {start.path} does not say its "
            "step: bind TRAIN_STEPS in the config, or name the checkpoint by its folder checkpoint_N"
        )
    return _bound(config, config.owner_of("total_steps"), (start.step or 0) + steps)


def _bound(config: GinConfig, key: BindingKey, value: int) -> list[Change]:
    before = config.value(key)
    if before == value:
        return []
    config.bind(key, value)
    return [Change(key.short, as_gin(before), as_gin(value), Reason.STEPS)]
