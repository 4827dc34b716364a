"""GIN20: references that lack their ``()``, or have them where a class is wanted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from t5x_harness.findings import examples
from t5x_harness.findings.examples import training
from t5x_harness.findings.rule import Found, Mistake
from t5x_harness.gin.program import Binding
from t5x_harness.gin.values import Reference
from t5x_harness.lint.edits import add_call, drop_call
from t5x_harness.lint.rule import Context, finds, where

_OBJECTS: Mapping[str, tuple[str, ...]] = {
    "__main__.train": (
        "model",
        "train_dataset_cfg",
        "train_eval_dataset_cfg",
        "infer_eval_dataset_cfg",
        "checkpoint_cfg",
        "partitioner",
    ),
    "__main__.evaluate": ("model", "dataset_cfg", "restore_checkpoint_cfg", "partitioner"),
    "__main__.infer": ("model", "dataset_cfg", "restore_checkpoint_cfg", "partitioner"),
    "t5x.utils.CheckpointConfig": ("save", "restore"),
    "t5x.models.EncoderDecoderModel": ("module", "input_vocabulary", "output_vocabulary", "optimizer_def"),
    "t5x.models.DecoderOnlyModel": ("module", "vocabulary", "optimizer_def"),
    "t5x.examples.t5.network.Transformer": ("config",),
    "t5x.examples.scalable_t5.network.Transformer": ("config",),
    "t5x.partitioning.PjitPartitioner": ("logical_axis_rules",),
    "t5x.adafactor.Adafactor": ("logical_factor_rules",),
}
_SCHEDULES = ("t5x.trainer.Trainer", "learning_rate_fn")
_HEAD = examples.head("pretrain", "import __main__ as train_script", "from t5x import partitioning")


GIN20 = Mistake(
    "GIN20",
    "reference without (), or with () where a class is needed",
    why="`@X` is the class, `@X()` an object of it. The wrong one fails late, with an attribute error on a class.",
    bad=training("train_script.train.partitioner = @partitioning.PjitPartitioner", at="train_script.train.partitioner"),
    good=training("train_script.train.partitioner = @partitioning.PjitPartitioner()"),
)


@finds(GIN20)
def uncalled_reference(context: Context) -> Iterator[Found]:
    """Finds each parameter of T5X's that is given a class instead of an object, or the reverse."""
    for binding in context.program.final_bindings:
        given = context.program.resolve(binding)
        reference = given.value
        if not isinstance(reference, Reference):
            continue
        by = f" (read by {binding} in {where(binding.location)})" if given is not binding else ""
        if (binding.target, binding.param) == _SCHEDULES and _makes_schedule(reference) and not reference.called:
            yield Found(
                f"{given} = {reference} is the function that makes a schedule, and the schedule is needed{by}",
                given,
                f"add (): {given} = {reference}()",
                edits=add_call(context.program, given.location),
            )
        elif binding.param in _OBJECTS.get(binding.target, ()) and not reference.called:
            yield Found(
                f"{given} = {reference} is not called, and an object is needed{by}",
                given,
                f"add (): {given} = {reference}()",
                edits=add_call(context.program, given.location),
            )
        elif reference.called and _wants_class(context, binding, reference):
            plain = str(reference).removesuffix("()")
            yield Found(
                f"{given} = {reference} is called, and the class itself is needed{by}",
                given,
                f"take the () away: {given} = {plain}",
                edits=drop_call(context.program, given.location),
            )


def _wants_class(context: Context, binding: Binding, reference: Reference) -> bool:
    """Returns whether a parameter named as a class is given an object of a class of T5X's."""
    known = context.snapshot.find(binding.target)
    return (
        binding.param.endswith("_cls")
        and known is not None
        and reference.target is not None
        and context.snapshot.is_class(reference.target)
    )


def _makes_schedule(reference: Reference) -> bool:
    """Returns whether a function surely returns a learning rate schedule, and is not one itself."""
    target = reference.target or ""
    return target == "t5x.utils.create_learning_rate_scheduler" or (
        target.startswith("optax.") and target.endswith("_schedule")
    )
