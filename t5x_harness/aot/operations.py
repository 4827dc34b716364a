"""An operation that JAX does not have for TPUs: its name, and the user's line that asks for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax

from t5x_harness.aot.refusals import NotCompiled
from t5x_harness.resolve.exceptions import is_users, shown_path
from t5x_harness.spec import Finding, Location, Severity, Stage

_PRIMITIVE = re.compile(r"primitive '([^']+)' not found for platform")


def not_for_tpu(
    program: str, error: NotImplementedError, function: Callable[..., Any], arguments: Sequence[Any]
) -> NotCompiled:
    """Explains why JAX cannot lower a function.

    Args:
      program: the name of the program that it is.
      error: the exception that JAX raised.
      function: the function.
      arguments: its arguments.
    """
    known = _PRIMITIVE.search(str(error))
    said = f"JAX has no {known[1]} for TPUs" if known else str(error).partition("\n")[0]
    # JAX's own traceback of a function that was traced before ends within JAX.
    uses = _uses(jax.make_jaxpr(function)(*arguments), known[1]) if known else []
    return NotCompiled(
        program,
        Finding(
            "AOT02",
            Severity.ERROR,
            Stage.AOT,
            f"it cannot be lowered for a TPU: {said}",
            next(filter(None, uses), None),
            "use an operation that JAX has for TPUs; the traceback in the run's log shows who asks for this one",
        ),
    )


def _uses(jaxpr: Any, primitive: str) -> list[Location | None]:
    """Returns the user's innermost line for each use of a primitive; None if none of their lines leads there."""
    found: list[Location | None] = []
    for equation in jaxpr.eqns:
        uses: list[Location | None] = [None] if equation.primitive.name == primitive else []
        for inner in jax.tree.leaves(list(equation.params.values())):
            if hasattr(inner, "eqns"):
                uses += _uses(inner, primitive)
        found += [use or _line(equation) for use in uses]
    return found


def _line(equation: Any) -> Location | None:
    traced = equation.source_info.traceback
    frames = ((frame.file_name, frame.line_num) for frame in (traced.frames if traced is not None else ()))
    return next((Location(shown_path(file), line) for file, line in frames if is_users(file)), None)
