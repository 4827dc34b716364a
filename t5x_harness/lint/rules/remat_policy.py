"""MOD03: remat policies that T5X does not know."""

from __future__ import annotations

from collections.abc import Iterator

from t5x_harness.findings import examples
from t5x_harness.findings.rule import Example, Found, Mistake
from t5x_harness.lint.edits import set_literal
from t5x_harness.lint.rule import Context, finds
from t5x_harness.spec import Severity
from t5x_harness.system.misspelling import closest, meant

_POLICIES = ("none", "minimal", "full")
_HEAD = examples.head("pretrain", "from t5x.examples.scalable_t5 import network", model="small").replace(
    "examples/t5/", "examples/scalable_t5/"
)
_CONFIG = "t5x.examples.scalable_t5.network.T5Config"


MOD03 = Mistake(
    "MOD03",
    "UnknownRematPolicy",
    "remat policy that does not exist, which T5X takes for 'full'",
    severity=Severity.WARNING,
    why=(
        "T5X's scalable networks compare the policy with 'none' and 'minimal', and take anything else for 'full': each "
        "layer is computed again for the gradients. A misspelt 'minimal', or 'None' in quotes, makes steps slower, and "
        "nothing says so."
    ),
    bad=Example(_HEAD + "network.T5Config.remat_policy = 'minmal'\n", at="network.T5Config.remat_policy"),
    good=Example(_HEAD + "network.T5Config.remat_policy = 'minimal'\n"),
)


@finds(MOD03)
def unknown_remat_policy(context: Context) -> Iterator[Found]:
    """Finds each remat policy of a scalable network that T5X takes for another one."""
    for binding in context.program.final_bindings:
        if (binding.target, binding.param) != (_CONFIG, "remat_policy"):
            continue
        given = context.program.resolve(binding)
        if not isinstance(given.value, str) or given.value in _POLICIES:
            continue
        near, right = closest(given.value, _POLICIES), meant(given.value, _POLICIES)
        yield Found(
            f"there is no remat policy {given.value!r}: T5X takes it for 'full', and computes each layer twice",
            given,
            f"write {given} = {near!r}" if near else f"use one of {', '.join(map(repr, _POLICIES))}",
            edits=set_literal(context.program, given.location, given.value, repr(right)) if right else (),
        )
