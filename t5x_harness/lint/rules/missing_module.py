"""GIN15: imports of modules that are not there."""

from __future__ import annotations

from collections.abc import Iterator

from t5x_harness.lint.problems import ProblemKind
from t5x_harness.lint.rule import Context, Example, Rule
from t5x_harness.spec import Finding


class MissingModule(Rule):
    """A module that Python would not find."""

    code = "GIN15"
    title = "import of a module that does not exist here"
    why = (
        "The Python path of the job differs from the laptop's more often than not: `ModuleNotFoundError` on the TPU. "
        "The module is looked up without importing it."
    )
    bad = Example(
        "from __gin__ import dynamic_registration\nimport my_tasks_that_are_elsewhere\n", at="import my_tasks"
    )
    good = Example("from __gin__ import dynamic_registration\nimport seqio\n")

    def check(self, context: Context) -> Iterator[Finding]:
        """Yields a finding for each such import."""
        for problem in context.program.problems:
            if problem.kind is not ProblemKind.MISSING_MODULE:
                continue
            part = problem.detail
            whole = "" if part == problem.subject else f" (for {problem.subject})"
            yield self.finding(
                f"there is no module {part}{whole}",
                problem.location,
                _mend(context, part),
            )


def _mend(context: Context, part: str) -> str:
    top = part.split(".")[0]
    if top == "t5x":
        if context.snapshot.is_embedded:
            return "the embedded runtime does not have it: install T5X from its git repository"
        return "check its spelling against the T5X that is installed"
    if part != top:
        return f"{top} is there, but has no {part}: check the spelling and the version"
    if top in ("t5", "flaxformer", "seqio"):
        return f"install it: python -m pip install {top}"
    path = ", ".join((*context.program.spec.python_path, "."))
    return f"install it, or add its folder to python_path (searched: {path}, and the installed packages)"
