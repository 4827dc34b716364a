"""The numbers of the aot stage in a golden plan: kept beside the plan where it ran, and compared with a tolerance."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping

from t5x_harness.plan.golden import GoldenPlan
from t5x_harness.plan.golden_check import CODE, UPDATE, comments, golden_file, with_fact, with_finding
from t5x_harness.spec import Finding, RunSpec, Severity, Stage, StageResult

TOLERANCE = 0.01
"""By how much a number may differ, because newer compilers place buffers differently."""

_KEPT = ("hbm_peak", "hbm_needed", "flops_of_a_device", "collective_bytes")
_MODE = "mode"


def check_golden_numbers(spec: RunSpec, result: StageResult) -> StageResult:
    """Compares the numbers of an aot stage with those in the run's golden plan, or adds them if it has none.

    Args:
      spec: the run; ``spec.settings.plan_golden`` names the file, which the plan stage has written or found to be the same.
      result: the result of the stage, which passed.

    Returns:
      The stage, with a finding for what differs, or a fact.
    """
    ours = {f"{m.name} of {m.of}": f"{m.value:.0f} {m.unit}".strip() for m in result.measures if m.name in _KEPT}
    if not ours:  # nothing was compiled
        return result
    ours = {_MODE: str(spec.settings.aot), **ours}
    file, shown = golden_file(spec)
    kept = GoldenPlan.from_text(file.read_text(encoding="utf-8"))
    before = kept.facts.get(Stage.AOT.value)
    lines = [*_differences(before, ours)] if before is not None else []
    if before is None or (lines and spec.settings.plan_golden_update):
        written = dataclasses.replace(kept, facts={**kept.facts, Stage.AOT.value: ours})
        file.write_text(written.to_text(*comments(file)), encoding="utf-8")
        return with_fact(result, f"{shown}: numbers written")
    if not lines:
        return with_fact(result, f"{shown}: no number differs by more than {TOLERANCE:.0%}")
    finding = Finding(
        CODE,
        Severity.ERROR,
        Stage.AOT,
        "\n".join([f"what the TPU compiler says differs from {shown} by more than {TOLERANCE:.0%}:", *lines]),
        fix=f"undo it, or if it is meant, rewrite {shown} with {UPDATE} and commit it",
    )
    return with_finding(result, finding, spec)


def _differences(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for name in dict.fromkeys((*before, *now)):
        old, new = before.get(name), now.get(name)
        if old is None or new is None:
            yield f"{name}: {old or 'nothing'} -> {new or 'nothing'}"
        elif name == _MODE:
            if old != new:
                yield f"{name}: {old} -> {new}"
        elif not math.isclose(_number(old), _number(new), rel_tol=TOLERANCE):
            yield f"{name}: {old} -> {new}{_by(_number(old), _number(new))}"


def _number(text: str) -> float:
    try:
        return float(text.partition(" ")[0])
    except ValueError:
        return math.nan  # differs from every number


def _by(old: float, new: float) -> str:
    return f" ({(new - old) / old:+.1%})" if old > 0 else ""
