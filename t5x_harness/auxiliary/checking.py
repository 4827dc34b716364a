"""Checks a request before a job is started for each of many checkpoints: AUX01 to AUX10, and its plan."""

import dataclasses
from collections.abc import Iterator

from t5x_harness.auxiliary.jobs import JobTemplate, TrainJob
from t5x_harness.gin.program import MAIN, Binding, MacroBinding
from t5x_harness.gin.reading import program_of, snapshot_of
from t5x_harness.gin.values import format_value
from t5x_harness.lint.rule import CHECKPOINT_MACROS, REPLACED_MACROS, ConfiguredObject, Context, restore_config
from t5x_harness.lint.stage import lint_program
from t5x_harness.spec import Finding, RunResult, Severity, Stage
from t5x_harness.vertex.arguments import RunMode, normalized, output_folder_of

_JUDGED_HERE = ("AUX02", "AUX04", "AUX05", "CKP05")
"""The codes of lint findings that rest on assumptions about the controller, whose actions are known here."""


def findings_of(template: JobTemplate, train: TrainJob) -> list[Finding]:
    """Returns the mistakes in a request, errors first; if there is an error, no job should be started."""
    found = [*_of_request(template, train)]
    if not any(finding.severity is Severity.ERROR for finding in found) and template.mode is not None:
        found += _of_job(template)
    return sorted(found, key=lambda finding: list(Severity).index(finding.severity))


def _of_request(template: JobTemplate, train: TrainJob) -> Iterator[Finding]:
    request, mode = template.request, template.mode
    if not request.mixtures:
        yield _error(
            "AUX01",
            "no mixture is named, so no job would ever start: each job is for one mixture, whatever the gin files say",
            "give --auxiliary_job_mixtures=TASK, or TASK,TASK for several",
        )
    if not request.files:
        yield _error(
            "AUX02",
            "replace_gin_file leaves out the train job's gin files, and there are no others",
            "give --auxiliary_job_gin_file=FILE",
        )
    elif request.is_of_t5x and mode is None:
        yield _error(
            "AUX02",
            f"{', '.join(request.files)}: binds none of train, evaluate and infer, so a job has nothing to do",
            "give the gin file of an evaluation, such as one that includes t5x/configs/runs/eval.gin",
        )
    if mode not in (None, RunMode.TRAIN) and not request.replace_gin_file:
        yield _error(
            "AUX02",
            f"{request.module} would read the train job's {', '.join(request.train.gin_files)} too, and in {mode} "
            "there is no function train",
            "give --replace_gin_file, and in --auxiliary_job_gin_file all that the jobs need",
        )
    if request.final_steps < 0:
        yield _error("AUX06", f"final_auxiliary_job_steps is {request.final_steps}", "give 0, or train steps above it")
    if mode in (RunMode.EVAL, RunMode.INFER) and request.final_steps > 0:
        yield _error(
            "AUX06",
            f"final_auxiliary_job_steps is {request.final_steps}, and jobs that {mode} run no train steps",
            "give --final_auxiliary_job_steps=0; to fine-tune, name a gin file of training",
        )
    if mode is RunMode.TRAIN and request.final_steps == 0:
        yield _error(
            "AUX06",
            "final_auxiliary_job_steps is 0, and the jobs train: in the train job's folder they would all begin with "
            "its latest checkpoint",
            "give --final_auxiliary_job_steps=N to fine-tune for N steps, or name a gin file of evaluation",
        )
    yield from _of_bindings(template)
    if train.evaluates_by_loss and mode is RunMode.EVAL:
        yield Finding(
            "AUX10",
            Severity.NOTE,
            Stage.LINT,
            "the train job itself still evaluates by teacher forcing (train_eval_dataset_cfg): only infer_eval is "
            "moved into auxiliary jobs",
            fix="if that is slow, bind train.train_eval_dataset_cfg = None there, and in the jobs' gin file "
            "evaluate.training_evaluator_cls = @trainer.Trainer",
        )


def _of_bindings(template: JobTemplate) -> Iterator[Finding]:
    request = template.request
    for binding in normalized(request.bindings):
        name = binding.partition(" = ")[0]
        if name in REPLACED_MACROS:
            yield _error("AUX05", f"{binding}: the controller gives each job its own {name}", f"leave {name} out")
    for binding in normalized(request.train.bindings) if request.replace_gin_file else ():
        name, equals, _ = binding.partition(" = ")
        if equals and name not in REPLACED_MACROS:
            yield Finding(
                "AUX05",
                Severity.WARNING,
                Stage.LINT,
                f"{binding} is for the train job: with replace_gin_file the auxiliary jobs do not get it",
                fix=f"give --auxiliary_job_binding='{binding}' too if they are to have it",
            )


def _of_job(template: JobTemplate) -> Iterator[Finding]:
    """Checks the config of one job, with a step and a checkpoint that occur nowhere else."""
    step = 987_654_321
    checkpoint = f"/a/checkpoint_{step}"
    mixture = template.request.mixtures[0]
    job = template.job(checkpoint, step, mixture)
    program = program_of(job.spec)
    for finding in lint_program(program).findings:
        if finding.code == "AUX03" and template.shares_folder:  # the jobs are meant to do this
            yield dataclasses.replace(finding, severity=Severity.WARNING)
        elif finding.code not in _JUDGED_HERE:
            yield finding
    if not program.complete or program.mode is None:
        return
    context = Context(program, snapshot_of(program))
    restore = restore_config(context)
    path = restore.parameter("path")
    if path is None or path.value != checkpoint:
        shown = f"{path.at} = {format_value(path.value)}" if path is not None else "no checkpoint"
        yield _error(
            "AUX04",
            f"the jobs would all begin with {shown}, and not with the checkpoint that they are for: neither of "
            f"{' and '.join(CHECKPOINT_MACROS)} is read there",
            f"bind RestoreCheckpointConfig.path = %{CHECKPOINT_MACROS[0]}",
            at=path.at if path is not None else None,
        )
    elif (mode := restore.parameter("mode")) is not None and mode.value != "specific":
        yield _error(
            "AUX09",
            f"{mode.at} = {format_value(mode.value)} looks for checkpoints in a folder, and passes over those that "
            "eval.MIXTURE.ckpt lists; each auxiliary job is for one checkpoint",
            "bind RestoreCheckpointConfig.mode = 'specific'",
            at=mode.at,
        )
    assert template.mode is not None
    output = output_folder_of(program, template.mode)
    if output.value != job.folder:
        yield _error(
            "AUX06",
            f"the jobs would write into {output.name} = {format_value(output.value)}, and not into {job.folder}, where "
            + ("TensorBoard has the train job's metrics" if template.mode is RunMode.EVAL else "each has its own"),
            f"leave {output.name} open, or bind it to %MODEL_DIR",
        )
    if template.mode is RunMode.TRAIN:
        yield from _of_steps(ConfiguredObject(context, f"{MAIN}.train"), step + template.request.final_steps)
    datasets = [binding for binding in program.final_bindings if binding.param == "mixture_or_task_name"]
    if mixture not in [program.resolve(binding).value for binding in datasets]:
        yield _error(
            "AUX01",
            f"no dataset of the jobs is of {mixture}: nothing reads MIXTURE_OR_TASK_NAME, so the jobs of all "
            "mixtures would do the same",
            "bind DatasetConfig.mixture_or_task_name = %MIXTURE_OR_TASK_NAME",
        )


def _of_steps(train: ConfiguredObject, steps: int) -> Iterator[Finding]:
    total, relative = train.parameter("total_steps"), train.parameter("relative_steps")
    if total is not None and total.value != steps:
        yield _error(
            "AUX06",
            f"{total.at} = {format_value(total.value)} is where the jobs end, whatever they begin with: nothing reads "
            "TRAIN_STEPS",
            "bind train.total_steps = %TRAIN_STEPS",
            at=total.at,
        )
    if relative is not None and relative.value is not None:
        yield _error(
            "AUX06",
            f"{relative.at} = {format_value(relative.value)} counts in place of TRAIN_STEPS, and so of "
            "final_auxiliary_job_steps",
            f"leave {relative.at} out",
            at=relative.at,
        )


def _error(code: str, message: str, fix: str, at: Binding | MacroBinding | None = None) -> Finding:
    return Finding(
        code,
        Severity.ERROR,
        Stage.LINT,
        message,
        location=at.location if at is not None else None,
        fix=fix,
        binding=str(at) if at is not None else None,
    )


def plan_jobs(template: JobTemplate, last_step: int | None) -> list[RunResult]:
    """Lints, resolves and plans one job for each mixture, because all jobs of a mixture have the same mistakes.

    Args:
      template: the parts that the jobs have in common.
      last_step: the train job's last step, if known; its checkpoint need not exist yet.
    """
    from t5x_harness.runs.pool import plan_specs

    step = last_step or 1
    checkpoint = f"{template.model_dir}/checkpoint_{step}"
    return plan_specs([template.job(checkpoint, step, mixture).spec for mixture in template.request.mixtures])
