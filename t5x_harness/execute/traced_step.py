"""One train step of a user's own model or optimizer, traced in shapes by T5X's own trainer."""

import sys
from typing import Any

import jax
from t5x import trainer

from t5x_harness.aot.programs import aot_run, capture
from t5x_harness.aot.request import TRAIN
from t5x_harness.plan.planned import PREEMPTIBLE, Planned
from t5x_harness.resolve.exceptions import CodePlace, definition_of, is_users
from t5x_harness.spec import Finding, Severity, Stage

_NO_PAIR = "expected function with aux output"
"""The words of JAX about a loss function that does not return a pair."""


def trace_step(plan: Planned) -> Finding | None:
    """Traces a train step as T5X does before the first one, if code of the user's is in it.

    A trainer, a feature converter or a source of data of the user's own may need more than shapes, or give the model
    other features than it declares: then nothing is traced.

    Args:
      plan: the planned run.

    Returns:
      What the model's loss function returns in place of a loss and metrics; None if it is fine, or not known.

    Raises:
      Exception: what T5X would raise when it compiles the step.
    """
    config, model = plan.config, plan.run.model
    if not _has_users_code(model):
        return None
    program = next((each for each in aot_run(plan).programs if each.name == TRAIN), None)
    own_data = config.entry_bindings().get("get_dataset_fn") is not None
    if program is None or own_data or _package(model.FEATURE_CONVERTER_CLS) != "seqio":
        return None
    if not _takes_steps_of_t5x(plan):
        return None
    place = definition_of(model.loss_fn)
    _, captured = capture(program, config, plan.partitioner)
    try:
        _, metrics = jax.eval_shape(captured.function, *captured.arguments)
    except TypeError as error:
        if _NO_PAIR not in str(error) or place is None:
            raise
        return _wrong(place, "does not return a loss and a dict of metrics", "return both")
    plain = next((name for name, value in metrics.items() if not hasattr(value, "compute_value")), None)
    if plain is None or place is None:
        return None
    what = f"returns the metric {plain} as an array or a number, and T5X needs a metric of clu"
    return _wrong(place, what, "wrap it, for instance as t5x.metrics.AveragePerStep(total=...)")


def _takes_steps_of_t5x(plan: Planned) -> bool:
    """Returns whether the trainer is T5X's, or that for preempted jobs, which takes the same steps."""
    made = plan.config.build("trainer_cls")
    if getattr(made, "__module__", "") == trainer.__name__:
        return True
    bases = {(base.__module__, base.__name__) for base in getattr(made, "__mro__", ())}
    return plan.is_preemptible and bases - _bases_of_t5x() == {
        (made.__module__, name) for name in ("Trainer", PREEMPTIBLE)
    }


def _bases_of_t5x() -> set[tuple[str, str]]:
    return {(base.__module__, base.__name__) for base in trainer.Trainer.__mro__}


def _wrong(place: CodePlace, what: str, fix: str) -> Finding:
    return Finding("USR01", Severity.ERROR, Stage.PLAN, f"{place} {what}", place.location, fix)


def _has_users_code(model: Any) -> bool:
    """Returns whether the class of a model, of its network or of its optimizer is in a file of the user's."""
    parts = (model, getattr(model, "module", None), getattr(model, "optimizer_def", None))
    files = (getattr(sys.modules.get(type(part).__module__), "__file__", None) for part in parts)
    return any(file is not None and is_users(file) for file in files)


def _package(kind: Any) -> str:
    return str(getattr(kind, "__module__", "")).partition(".")[0]
