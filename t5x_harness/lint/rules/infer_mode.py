"""INF04: a mode of inference that does not exist."""

from __future__ import annotations

from collections.abc import Iterator

from t5x_harness.findings import examples
from t5x_harness.findings.rule import Example, Found, Mistake
from t5x_harness.gin.values import format_value
from t5x_harness.lint.edits import set_literal
from t5x_harness.lint.rule import Context, finds
from t5x_harness.system.misspelling import closest, meant

_MODES = ("predict", "score", "predict_with_aux")
_HEAD = examples.head("infer")


INF04 = Mistake(
    "INF04",
    "InferMode",
    "mode of inference that does not exist",
    why="T5X refuses it only after the job has started and written its config, with `mode must be one of`.",
    bad=Example(_HEAD, bindings=("infer.mode = 'generate'",), at="infer.mode"),
    good=Example(_HEAD, bindings=("infer.mode = 'predict_with_aux'",)),
)


@finds(INF04)
def infer_mode(context: Context) -> Iterator[Found]:
    """Finds something else than what T5X's ``infer`` can do."""
    for binding in context.program.final_bindings:
        if (binding.target, binding.param) == ("__main__.infer", "mode"):
            given = context.program.resolve(binding)
            if isinstance(given.value, str) and given.value not in _MODES:
                near = closest(given.value, _MODES)
                fix = f"write {given} = {format_value(near)}" if near else f"use {', '.join(_MODES)}"
                right = meant(given.value, _MODES)
                edits = set_literal(context.program, given.location, given.value, repr(right)) if right else ()
                yield Found(f"infer has no mode {format_value(given.value)}", given, fix, edits=edits)
