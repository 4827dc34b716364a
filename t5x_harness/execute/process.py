"""The calls that a run's processes answer: the run's own process, and those that each compile one of its programs."""

import contextlib
import dataclasses
import functools
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from t5x_harness.execute.command_line import as_t5x
from t5x_harness.execute.execution import Execution, Progress, open_execution
from t5x_harness.execute.output import checkpoints_in, json_lines, output_key, scalars_in
from t5x_harness.findings.stage_report import StageReport
from t5x_harness.gin.config import BindingKey, GinConfig
from t5x_harness.plan.checkpoint_source import find_initial
from t5x_harness.spec import Change, Changed, Mode, Reason, Stage

if TYPE_CHECKING:
    import seqio

    from t5x_harness.execute.prepare import PreparedRun
    from t5x_harness.resolve.datasets import DataRole

_CHUNKS = 4
"""The chunks of each task in an inference that is interrupted, a batch each."""


def open_run(argument: Mapping[str, Any], progress: Progress) -> SimpleNamespace:
    """Sets up this process for a run; see :func:`~t5x_harness.execute.execution.open_execution`.

    Returns:
      The functions that can be called, by name: each stage, and queries about a run between or after its stages.
    """
    run = open_execution(argument, progress)
    stages = {stage.value: functools.partial(run_stage, run, stage) for stage in Stage}
    others = {each.__name__: functools.partial(each, run) for each in (job, programs, artifacts, repeatable)}
    return SimpleNamespace(**stages, **others)


def run_stage(run: Execution, stage: Stage) -> dict[str, Any]:
    """Runs a stage; see :meth:`~t5x_harness.execute.execution.Execution.run`."""

    def work(run: Execution, report: Any) -> None:
        from t5x_harness.execute.stages import STAGES  # imports T5X

        STAGES[stage](run, report)

    return run.run(stage, work)


def job(run: Execution, shrink: bool, steps: int | None = None, standins: bool = False) -> dict[str, Any]:
    """Returns the bindings that a job for a planned run needs in addition to its config.

    Args:
      run: the run.
      shrink: whether the job runs at the sizes of the stages here.
      steps: the train steps of the job; None for those of the config, or for a few if it is shrunk.
      standins: whether a checkpoint that cannot be read here is also generated at the config's sizes; for a shrunk run
        one always is.

    Returns:
      ``prepared``, a StageResult with the changes; ``output``, the binding of the folder that the run writes into: its
      ``name``, as the command line takes it, and ``address``, the ``gs://`` or ``/gcs/`` folder that the config itself
      names, both empty if it names none; and ``first_step``, the step that training starts from, or 0.
    """

    def prepare(run: Execution, report: StageReport) -> None:
        if shrink or standins:
            # The job runs on the slice itself.
            sized = run.spec.with_settings(full_size=not shrink, full_mesh=True)
            run.prepared(report, sized, in_bucket=False, steps=steps)
        if steps is not None and not shrink:
            assert run.config is not None
            report.changes += _limit_steps(run.config, steps)
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


def _limit_steps(config: GinConfig, steps: int) -> list[Change]:
    """Binds the train steps of a run, counted from the checkpoint that it starts from.

    Args:
      config: the parsed config; changed.
      steps: the number of train steps.

    Returns:
      The changes; none if the config does not train, or already trains for that many steps.

    Raises:
      ValueError: the step that the run starts from is not known, so its last step cannot be known.
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
    return [Change(key.short, repr(before), repr(value), Reason.STEPS)]


def programs(run: Execution) -> dict[str, Any]:
    """Returns the facts about a planned run that the aot stage needs; see :class:`t5x_harness.aot.request.AotRun`."""
    from t5x_harness.aot.programs import aot_run

    return aot_run(run.plan_or_stop()).to_json()


def artifacts(run: Execution) -> dict[str, Any]:
    """Returns the output of a run, as the fields of a RunResult that are read from its folder."""
    model_dir = run.workspace / "model"
    if run.output and run.output.is_in_bucket:
        # It is copied, by links if the file system allows: a later run must not see it, and all runs share the buckets.
        shutil.rmtree(model_dir, ignore_errors=True)
        if run.output.local.is_dir():
            shutil.copytree(run.output.local, model_dir, copy_function=_link)
    elif run.output:
        model_dir = run.output.local
    metrics = scalars_in(model_dir) if model_dir.is_dir() else {}
    predictions = []
    for part in ("eval", "infer"):
        folder = run.workspace / part
        if folder.is_dir():
            metrics |= scalars_in(folder, f"{part}/")
            predictions += json_lines(folder)
    if not predictions and model_dir.is_dir():
        predictions = json_lines(model_dir)
    trains = run.config is None or run.config.mode is Mode.TRAIN
    checkpoints = checkpoints_in(model_dir) if trains else []  # others may restore existing ones, and write none
    config = model_dir / "config.gin"
    return {
        "steps": run.trained.step if run.trained else 0,
        "metrics": {tag: {str(step): value for step, value in steps.items()} for tag, steps in metrics.items()},
        "checkpoints": [dataclasses.asdict(c) for c in checkpoints],
        "predictions": predictions,
        "operative_config": config.read_text(encoding="utf-8") if config.is_file() else "",
        "model_dir": str(model_dir),
        "runtime": str(run.runtime),
    }


def repeatable(run: Execution, mode: str) -> dict[str, Any]:
    """Returns what another process needs to repeat a training, evaluation or inference, before or after it is done.

    See :class:`~t5x_harness.resume.repeater.Repeatable` for the values.

    Args:
      run: the run.
      mode: which of the three; a train config can be asked for inferring with the checkpoint that it wrote.
    """
    with as_t5x(run.spec, run.runtime.location):
        small = run.prepare_early()
    config = small.config
    changed = {change.binding for change in small.changes if change.what is Changed.BINDING}
    found = {
        "mode": mode,
        "bindings": [f"{key.short} = {value!r}" for key, value in config.items() if key.short in changed],
        "output": output_key(config).short,
        "address": run.written.address,
        "local": str(run.written.local),
        "is_in_bucket": run.written.is_in_bucket,
        "standins": str(run.standins.folder) if run.standins else "",
        "embedding_rows": run.standins.rows if run.standins else None,
        "data_axis": small.partitioner.mesh.shape["data"],
        "examples": small.examples,
        "first_step": 0,
        "last_step": 1,
    }
    if mode == Mode.TRAIN:
        return found | _trained_steps(run, small)
    if mode == Mode.INFER:
        role = small.data.inferred if config.mode is Mode.TRAIN else small.data.role("dataset_cfg")
        found |= {"last_step": _chunks(role, small.data.tasks(role)), "examples": _CHUNKS * role.dataset.batch_size}
    if config.mode is Mode.TRAIN:
        folder = run.workspace / "infer"  # MODEL_DIR is another one
        found |= {"checkpoint": run.trained_checkpoint(), "address": str(folder), "local": str(folder)}
        found["is_in_bucket"] = False
    return found


def _chunks(role: "DataRole", tasks: "Sequence[seqio.Task]") -> int:
    """Returns how many of the chunks each task of an inference has at least."""
    dataset, size = role.dataset, role.dataset.batch_size
    numbers = [_CHUNKS]
    for task in tasks:
        examples = task.get_dataset(
            dataset.task_feature_lengths,
            split=dataset.split,
            use_cached=dataset.use_cached,
            shuffle=False,
            seed=dataset.seed,
            num_epochs=1,
        )
        numbers.append(math.ceil(sum(1 for _ in examples.take(_CHUNKS * size)) / size))
    return min(numbers)


def _trained_steps(run: Execution, small: "PreparedRun") -> dict[str, Any]:
    """Returns the steps at which a training does something, and what its checkpoints have."""
    config = small.config
    save = config.build("checkpoint_cfg").save
    dtype = str(getattr(save, "dtype", None) or "")
    first, last = small.first_step, small.first_step + small.steps
    period, listed = getattr(save, "period", None), getattr(save, "checkpoint_steps", None)
    has_evaluation = any(role.name == "train_eval" for role in small.data.roles)
    eval_period = config.value(config.owner_of("eval_period")) if has_evaluation else None
    return {
        "first_step": first,
        "last_step": last,
        "saves": sorted({*_each(period, first, last), *(step for step in listed or () if first < step <= last)}),
        "evals": _each(eval_period, first, last),
        "record": str(run.recorded),
        "saves_dataset": bool(getattr(save, "save_dataset", False)),
        "save_dtype": "" if dtype == "float32" else dtype,
        "hardware_rng": bool(config.value(config.owner_of("use_hardware_rng"))),
    }


def _each(period: int | None, first: int, last: int) -> list[int]:
    """Returns the steps at which T5X does what it does each ``period`` steps, and at its last one; none without it."""
    return sorted({*range(first + period, last, period), last}) if period else []


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # it is on another file system
        shutil.copy2(source, target)


class ProgramProcess:
    """One program, which is lowered, and then compiled once no other process on this machine compiles.

    Its arguments set up this process for the run that the program belongs to; see
    :func:`~t5x_harness.execute.execution.open_execution`.
    """

    def __init__(self, argument: Mapping[str, Any], progress: Progress) -> None:
        self._run = open_execution(argument, progress)
        self._lowered: Any = None
        self._turn = contextlib.ExitStack()  # to compile; released when the process ends, however it ends

    def lower(self, program: dict[str, Any]) -> dict[str, Any]:
        """Lowers the program for the slice.

        Args:
          program: an :class:`~t5x_harness.aot.request.ProgramSpec` as JSON.

        Returns:
          A :class:`~t5x_harness.aot.request.LoweredProgram` as JSON, or ``finding``: the mistake, as JSON.
        """
        from t5x_harness.aot.programs import lower
        from t5x_harness.aot.refusals import NotCompiled
        from t5x_harness.aot.request import ProgramSpec
        from t5x_harness.resolve.explanation import explain, log_traceback

        try:
            self._run.open_config()
            assert self._run.config is not None
            spec = ProgramSpec.from_json(program)
            self._lowered, described = lower(spec, self._run.config, self._run.slice)
        except Exception as error:  # anything that the user's model, T5X or JAX raises
            log_traceback(error)
            if isinstance(error, NotCompiled):
                return {"finding": error.finding.to_json()}
            return {"finding": explain(error, Stage.AOT, self._run.config, None).to_json()}
        return described.to_json()

    def await_turn(self, lock: str) -> None:
        """Waits until no other process compiles for a TPU, then keeps the others from it until this process ends.

        Args:
          lock: the lock file.
        """
        from t5x_harness.aot.libtpu import one_at_a_time

        waiting = {"stage": Stage.AOT.value, "waiting": True}
        self._turn.enter_context(one_at_a_time(Path(lock), lambda: self._run.progress(waiting)))

    def compile(self, folder: str, until: str) -> dict[str, Any]:
        """Compiles the program that was lowered; see :func:`t5x_harness.aot.libtpu.compile_program`.

        Args:
          folder: a new folder for the compiler's output.
          until: an :class:`~t5x_harness.aot.libtpu.Until`'s value.

        Returns:
          A :class:`~t5x_harness.aot.libtpu.CompilerResult` as JSON.
        """
        from t5x_harness.aot.libtpu import Until, compile_program

        return compile_program(self._lowered, Path(folder), Until(until)).to_json()
