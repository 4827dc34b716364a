"""GIN03: values that are left ``%gin.REQUIRED``."""

from __future__ import annotations

from collections.abc import Iterator

from t5x_harness.lint.classify import SANDBOXED_MACROS
from t5x_harness.lint.rule import Context, Example, Rule
from t5x_harness.spec import Finding

_HEAD = """\
include 't5x/examples/t5/t5_1_1/tiny.gin'
include 't5x/configs/runs/pretrain.gin'
MIXTURE_OR_TASK_NAME = 'my_task'
TASK_FEATURE_LENGTHS = {'inputs': 8, 'targets': 8}
"""


class RequiredLeft(Rule):
    """Something has to be given and is not."""

    code = "GIN03"
    title = "value left gin.REQUIRED"
    why = (
        "T5X stops after half a minute of imports and names only the first missing value; here they are all listed. "
        f"The output folders ({', '.join(SANDBOXED_MACROS)}) may stay open: whoever launches the run gives them."
    )
    bad = Example(_HEAD, at="TRAIN_STEPS = %gin.REQUIRED")
    good = Example(_HEAD + "TRAIN_STEPS = 100\nDROPOUT_RATE = 0.0\n")
    whole_program = True

    def check(self, context: Context) -> Iterator[Finding]:
        """Yields a finding for each macro and each parameter that is left open."""
        for macro in context.program.required_macros:
            if macro.name not in SANDBOXED_MACROS:
                yield self.finding(
                    f"{macro.name} is gin.REQUIRED and nothing gives it a value",
                    macro,
                    f"bind it below the includes ({macro.name} = ...) or pass --gin.{macro.name}=...",
                )
        for binding in context.program.required_parameters:
            yield self.finding(
                f"{binding} is gin.REQUIRED and nothing gives it a value", binding, f"bind it later: {binding} = ..."
            )
