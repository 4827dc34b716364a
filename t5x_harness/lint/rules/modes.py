"""GIN12, GIN31 and AUX02 to AUX05: configs of another mode, for several binaries, or for auxiliary jobs."""

from collections.abc import Iterator

from t5x_harness.findings.rule import Example, Found, Rule, run_head
from t5x_harness.gin.program import BINDINGS, ENTRIES, Binding, MacroBinding
from t5x_harness.gin.values import Reference, format_value
from t5x_harness.lint.classify import unbound_parameters
from t5x_harness.lint.rule import (
    CHECKPOINT_MACROS,
    REPLACED_MACROS,
    ConfiguredObject,
    Context,
    restore_config,
    run_function,
)
from t5x_harness.spec import Location, Mode, Severity

_FUNCTIONS = {mode: name.rpartition(".")[2] for name, mode in ENTRIES.items()}
_CHECKPOINT = CHECKPOINT_MACROS[0]
_FROM_CONTROLLER = f"{_CHECKPOINT} = %gin.REQUIRED\nCHECKPOINT_PATH = %{_CHECKPOINT}\n"
_HEAD = run_head("eval", "from t5x import utils")


def _of_other_modes(context: Context) -> tuple[bool, list[tuple[Binding, Mode]]]:
    """Returns whether the config binds the requested function, and its bindings of T5X's other functions."""
    wanted = context.program.spec.mode or context.program.mode
    bound = [(b, ENTRIES[b.target]) for b in context.program.entries if b.target in ENTRIES]
    others = [(binding, mode) for binding, mode in bound if mode is not wanted]
    return len(others) < len(bound), others


def is_for_controller(context: Context, macro: MacroBinding) -> bool:
    """Returns whether a macro of an evaluation's config only exists for the controller to replace it."""
    return macro.name == _CHECKPOINT and context.program.mode in (Mode.EVAL, Mode.INFER)


@Rule(
    "AUX02",
    "run files of two binaries in one config",
    why=(
        "Each binary knows its own function only: `Couldn't resolve selector train_script.train`. An auxiliary job "
        "that runs another binary reads the training job's gin files too, unless it is started with "
        "replace_gin_file=True."
    ),
    bad=Example(
        run_head("pretrain") + "include 't5x/configs/runs/eval.gin'\n",
        mode=Mode.EVAL,
        at="include 't5x/configs/runs/pretrain.gin'",
    ),
    good=Example(_HEAD, mode=Mode.EVAL),
)
def two_binaries(context: Context) -> Iterator[Found]:
    """Finds run files for two binaries that are read together: each function that the run's binary does not have."""
    has_wanted, others = _of_other_modes(context)
    wanted = context.program.spec.mode or context.program.mode
    for binding, mode in others if has_wanted else ():
        yield Found(
            f"{binding} is for {mode} runs, and this config binds {wanted} as well: no binary has both",
            binding,
            "keep one run file (an auxiliary job with another binary needs replace_gin_file=True)",
        )


@Rule(
    "AUX04",
    "auxiliary evaluation of a fixed checkpoint",
    whole_program=True,
    severity=Severity.WARNING,
    why=(
        f"The controller of auxiliary jobs puts the new checkpoint into {_CHECKPOINT}. T5X's eval.gin reads "
        "CHECKPOINT_PATH: the same checkpoint is evaluated again and again."
    ),
    bad=Example(
        _HEAD + f"{_CHECKPOINT} = 'gs://b/checkpoint_20'\nCHECKPOINT_PATH = 'gs://b/checkpoint_10'\n", at=_CHECKPOINT
    ),
    good=Example(_HEAD + f"{_CHECKPOINT} = 'gs://b/checkpoint_20'\nCHECKPOINT_PATH = %{_CHECKPOINT}\n"),
)
def controller_not_read(context: Context) -> Iterator[Found]:
    """Finds an evaluation that does not read the checkpoint named by the controller."""
    program = context.program
    macro = program.macros.get(_CHECKPOINT)
    path = restore_config(context).parameter("path")
    if macro is None or path is None or macro.name in program.read_macros or not is_for_controller(context, macro):
        return
    yield Found(
        f"nothing reads {_CHECKPOINT}: the checkpoint of {path.at} = {format_value(path.value)} is used",
        macro,
        f"write {path.at} = %{_CHECKPOINT}, or remove {_CHECKPOINT}",
    )


@Rule(
    "AUX05",
    "binding that an auxiliary job would not get",
    severity=Severity.NOTE,
    why=(
        "The controller of auxiliary jobs passes on gin files only, with its own values for "
        f"{', '.join(REPLACED_MACROS)}: `--gin.…` flags are dropped silently."
    ),
    bad=Example(_HEAD + _FROM_CONTROLLER, ("DROPOUT_RATE = 0.0",), at="DROPOUT_RATE"),
    good=Example(_HEAD + _FROM_CONTROLLER + "DROPOUT_RATE = 0.0\n"),
)
def bindings_not_passed_on(context: Context) -> Iterator[Found]:
    """Finds each binding of the command line, if the config looks like one for auxiliary jobs."""
    program = context.program
    if program.mode not in (Mode.EVAL, Mode.INFER) or _CHECKPOINT not in program.read_macros:
        return
    for statement in program.final.values():
        if statement.location.file == BINDINGS and str(statement) not in REPLACED_MACROS:
            yield Found(
                f"{statement} comes from the command line; an auxiliary job (this config reads {_CHECKPOINT}) does "
                "not get it",
                statement,
                f"bind {statement} in the gin file if the config is for auxiliary jobs",
            )


_TENSORBOARD = ("seqio.TensorBoardLogger", "seqio.TensorBoardLoggerV1")
_KNOWN = (*_TENSORBOARD, "seqio.PyLoggingLogger", "seqio.JSONLogger")
_SEQIO = run_head("eval", "import seqio")


@Rule(
    "AUX03",
    "evaluation that does not write to TensorBoard",
    why=(
        "SeqIO's evaluator writes its metrics through `logger_cls` and nowhere else, and by default that is empty. "
        "T5X's finetune.gin and eval.gin name three loggers; pretrain.gin and many own files for evaluation name none."
    ),
    bad=Example(_SEQIO + "seqio.Evaluator.logger_cls = [@seqio.JSONLogger]\n", at="seqio.Evaluator.logger_cls"),
    good=Example(_SEQIO + "seqio.Evaluator.logger_cls = [@seqio.JSONLogger, @seqio.TensorBoardLogger]\n"),
)
def evaluation_loggers(context: Context) -> Iterator[Found]:
    """Finds an evaluator without loggers (a warning), or without one for TensorBoard (a note)."""
    run = run_function(context, Mode.TRAIN, Mode.EVAL)
    name = "infer_eval_dataset_cfg" if context.program.mode is Mode.TRAIN else "dataset_cfg"
    dataset = run.parameter(name, Reference)
    evaluator = ConfiguredObject(context, "seqio.Evaluator")
    if run.parameter("inference_evaluator_cls") is not None:
        evaluator = run.built("inference_evaluator_cls", evaluator.target)
    if dataset is None or not evaluator:
        return
    loggers = evaluator.parameter("logger_cls")
    if loggers is None or loggers.value in ([], ()):
        yield Found(
            f"{dataset.binding} is evaluated, and seqio.Evaluator.logger_cls is empty: the metrics are written nowhere",
            dataset.at if loggers is None else loggers.at,
            "bind seqio.Evaluator.logger_cls = [@seqio.PyLoggingLogger, @seqio.TensorBoardLogger, @seqio.JSONLogger]",
            severity=Severity.WARNING,
        )
    elif isinstance(loggers.value, (list, tuple)):
        names = [logger.target for logger in loggers.value if isinstance(logger, Reference)]
        known = len(names) == len(loggers.value) and set(names) <= set(_KNOWN)
        if known and not set(names) & set(_TENSORBOARD):
            yield Found(
                f"{loggers.at} has no logger for TensorBoard: the metrics do not appear there",
                loggers.at,
                "add @seqio.TensorBoardLogger",
                severity=Severity.NOTE,
            )


_PRETRAIN = run_head("pretrain")
_DYNAMIC = "from __gin__ import dynamic_registration\nimport __main__ as train_script\n"
_FORGOTTEN = "train_script.train.total_steps = 100\n"


@Rule(
    "GIN12",
    "config for another run mode",
    why=(
        "`import __main__ as train_script` is whatever was launched: a train config given to the eval binary stops "
        "with `AttributeError: Couldn't resolve selector train_script.train`."
    ),
    bad=Example(_PRETRAIN, mode=Mode.EVAL, at="include 't5x/configs/runs/pretrain.gin'"),
    good=Example(_PRETRAIN, mode=Mode.TRAIN),
)
def wrong_mode(context: Context) -> Iterator[Found]:
    """Finds each function of another mode that is bound; if the right one is bound as well, AUX02 reports it."""
    wanted = context.program.spec.mode
    has_wanted, others = _of_other_modes(context)
    for binding, mode in others if wanted is not None and not has_wanted else ():
        yield Found(
            f"{binding} is for {mode} runs ({_FUNCTIONS[mode]}), and {wanted} was asked for",
            binding,
            f"run it with --run_mode={mode}, or include the run file for {wanted}",
        )


_USUAL = {
    "dataset_cfg": " = @utils.DatasetConfig()",
    "restore_checkpoint_cfg": " = @utils.RestoreCheckpointConfig()",
    "partitioner": " = @partitioning.PjitPartitioner()",
}
"""What T5X's run files bind to parameters without which evaluate and infer do not start."""


def _bound(entry: str, name: str) -> str:
    return f"{entry}.{name}{_USUAL.get(name, '')}"


@Rule(
    "GIN31",
    "gin file that is not a run config",
    whole_program=True,
    why=(
        "A run config binds T5X's train, evaluate or infer and everything that the function has no default for; other "
        "files are fragments, made to be included."
    ),
    bad=Example(
        _DYNAMIC + "include 't5x/examples/t5/t5_1_1/tiny.gin'\n" + _FORGOTTEN, at="train_script.train.total_steps"
    ),
    good=Example(_DYNAMIC + _PRETRAIN + _FORGOTTEN),
)
def no_run_config(context: Context) -> Iterator[Found]:
    """Finds a config that binds nothing to run, or that leaves parameters unbound, all of which it names."""
    program = context.program
    if not program.statements and program.problems:
        return
    first = Location(program.files[0], 1) if program.files else None
    if program.mode is None:
        others = f"; it binds {program.entries[0]}, which the harness does not run" if program.entries else ""
        yield Found(
            f"this is not a run config: it binds none of T5X's functions train, evaluate and infer{others}",
            first,
            "include a run file ('t5x/configs/runs/pretrain.gin', finetune.gin, eval.gin or infer.gin), or name it "
            "as one of several gin files of a run",
        )
    elif missing := unbound_parameters(program):
        entry = (program.entry or "").rpartition(".")[2]
        at = next(b for b in program.entries if b.target == program.entry)
        yield Found(
            f"{entry} needs {', '.join(missing)}, and nothing binds {'it' if len(missing) == 1 else 'them'}",
            at.location,
            f"bind {', '.join(_bound(entry, name) for name in missing)}, or include the run file that does",
            binding=f"{entry}.{missing[0]}",
        )
