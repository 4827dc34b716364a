"""GIN06: bindings in a scope that nothing opens."""

from __future__ import annotations

from collections.abc import Iterator

from t5x_harness.findings import examples
from t5x_harness.findings.rule import Example, Found, Mistake
from t5x_harness.gin.program import GinProgram
from t5x_harness.lint.edits import rename_scope
from t5x_harness.lint.rule import Context, finds
from t5x_harness.spec import Edit, Severity
from t5x_harness.system.misspelling import closest, meant

_USUAL = ("train", "train_eval", "infer_eval")
_HEAD = examples.head("pretrain", "from t5x import utils")


GIN06 = Mistake(
    "GIN06",
    "UnknownScope",
    "scope that nothing opens",
    severity=Severity.WARNING,
    why="Scopes are free text: a misspelt one is a new one, and what is bound in it is never used.",
    bad=Example(_HEAD + "trian/utils.DatasetConfig.pack = False\n", at="trian/"),
    good=Example(_HEAD + "train/utils.DatasetConfig.pack = False\n"),
)


@finds(GIN06, whole_program=True)
def unknown_scope(context: Context) -> Iterator[Found]:
    """Finds each scope that nothing opens: a note for one of T5X's own that this run does not use."""
    program = context.program
    said: set[str] = set()
    for binding in program.final_bindings:
        scope = binding.scope
        if not scope or scope in program.used_scopes or scope in said:
            continue
        said.add(scope)
        near = None if scope in _USUAL else closest(scope, program.used_scopes)
        if near is not None:
            yield Found(
                f"nothing opens the scope {scope}, so {binding} has no effect",
                binding,
                f"did you mean {near}/?",
                edits=_renamed(program, scope) if meant(scope, program.used_scopes) == near else (),
            )
            continue
        severity = Severity.NOTE if scope in _USUAL else Severity.WARNING
        yield Found(
            f"no reference opens the scope {scope}, so {binding} has no effect unless Python code opens it",
            binding,
            f"use it in a reference (@{scope}/{binding.selector}), or remove the bindings",
            severity=severity,
        )


def _renamed(program: GinProgram, scope: str) -> tuple[Edit, ...]:
    """Gives every binding of a misspelt scope the scope that is meant."""
    right = meant(scope, program.used_scopes) or scope
    places = [binding.location for binding in program.bindings if binding.scope == scope]
    return tuple(dict.fromkeys(edit for place in places for edit in rename_scope(program, place, scope, right)))
