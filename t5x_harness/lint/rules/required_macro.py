"""GIN03, GIN21 and GIN27: values that are left ``%gin.REQUIRED``, or only seem to be."""

from __future__ import annotations

from collections.abc import Iterator

from t5x_harness.findings import examples
from t5x_harness.findings.rule import Example, Found, Mistake
from t5x_harness.gin.program import MacroBinding
from t5x_harness.gin.values import format_value, is_required, macros_in
from t5x_harness.lint.classify import LEFT_TO_LAUNCHER
from t5x_harness.lint.rule import Context, finds
from t5x_harness.spec import Mode, Severity

_HEAD = examples.head("pretrain") + (
    "MIXTURE_OR_TASK_NAME = 'my_task'\nTASK_FEATURE_LENGTHS = {'inputs': 8, 'targets': 8}\n"
)
_EVAL = examples.head("eval") + "MIXTURE_OR_TASK_NAME = 'my_task'\nCHECKPOINT_PATH = 'gs://b/checkpoint_10'\n"


GIN03 = Mistake(
    "GIN03",
    "RequiredLeft",
    "value left gin.REQUIRED",
    why=(
        "T5X stops after half a minute of imports and names only the first missing value; here they are all listed. "
        f"Some paths ({', '.join(LEFT_TO_LAUNCHER)}) may stay open: the launch of the run gives them."
    ),
    bad=Example(_HEAD, at="include 't5x/configs/runs/pretrain.gin'"),
    good=Example(_HEAD + "TRAIN_STEPS = 100\nDROPOUT_RATE = 0.0\n"),
)


@finds(GIN03, whole_program=True)
def required_left(context: Context) -> Iterator[Found]:
    """Finds each macro and parameter that is left open; GIN27 has those that only training needs."""
    for macro in context.program.required_macros:
        if macro.name not in LEFT_TO_LAUNCHER and not _is_of_training_only(context, macro):
            yield Found(
                f"{macro.name} is gin.REQUIRED and nothing gives it a value",
                macro,
                f"bind it below the includes ({macro.name} = ...) or pass --gin.{macro.name}=...",
            )
    for binding in context.program.required_parameters:
        yield Found(
            f"{binding} is gin.REQUIRED and nothing gives it a value", binding, f"bind it later: {binding} = ..."
        )


def _is_of_training_only(context: Context, macro: MacroBinding) -> bool:
    """Returns whether the run evaluates or infers, and the macro is only read where training needs it."""
    if context.program.mode not in (Mode.EVAL, Mode.INFER):
        return False
    readers = [b for b in context.program.final_bindings if macro.name in {m.name for m in macros_in(b.value)}]
    return bool(readers) and all(b.param == "dropout_rate" for b in readers)


GIN27 = Mistake(
    "GIN27",
    "RequiredByModel",
    "value of training left gin.REQUIRED in another run",
    why=(
        "T5X's model files declare `DROPOUT_RATE = %gin.REQUIRED`. Gin wants a value from every run that includes "
        "them, also where dropout is never applied."
    ),
    bad=Example(_EVAL, at="include 't5x/examples/t5/t5_1_1/tiny.gin'"),
    good=Example(_EVAL + "DROPOUT_RATE = 0.0\n"),
)


@finds(GIN27, whole_program=True)
def required_by_model(context: Context) -> Iterator[Found]:
    """Finds each macro that a model's gin file requires and this run does not use."""
    for macro in context.program.required_macros:
        if _is_of_training_only(context, macro):
            yield Found(
                f"{macro.name} is gin.REQUIRED and nothing gives it a value; {context.program.mode} runs do not "
                "use it, but Gin wants one",
                macro,
                f"bind {macro.name} = 0.0 below the includes, or pass --gin.{macro.name}=0.0",
            )


GIN21 = Mistake(
    "GIN21",
    "RequiredAndGiven",
    "macro declared gin.REQUIRED and bound in the same file",
    severity=Severity.NOTE,
    why=(
        "The last binding wins, so the macro needs no further value: who reads the first lines of the file learns "
        "something else. T5X's finetune.gin does so with MIXTURE_OR_TASK_MODULE."
    ),
    bad=Example("BATCH_SIZE = %gin.REQUIRED\n" + _HEAD + "BATCH_SIZE = 8\n", at="BATCH_SIZE = %gin.REQUIRED"),
    good=Example(_HEAD + "BATCH_SIZE = 8\n"),
)


@finds(GIN21)
def required_and_given(context: Context) -> Iterator[Found]:
    """Finds each macro that is declared required and bound further down in the same file, except in T5X's files."""
    for statement in context.program.statements:
        if not isinstance(statement, MacroBinding) or not is_required(statement.value):
            continue
        winner = context.program.macros[statement.name]
        same_file = (winner.location.file, winner.location.included_from) == (
            statement.location.file,
            statement.location.included_from,
        )
        if same_file and not is_required(winner.value) and not context.in_t5x(statement.location):
            yield Found(
                f"{statement} is declared gin.REQUIRED here and bound to {format_value(winner.value)} in line "
                f"{winner.location.line}: it is not required",
                statement,
                "remove one of the two",
            )
