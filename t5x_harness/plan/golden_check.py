"""Compares a run with its golden plan, or writes that; a difference is a finding that names the bindings.

The numbers of the aot stage are kept in the same file if it ran, and compared with a tolerance.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from t5x_harness.findings.silencing import split_silenced
from t5x_harness.findings.work import judged
from t5x_harness.plan.golden import GoldenPlan, GoldenSyntaxError, binding_names
from t5x_harness.spec import BoundValue, Finding, Location, RunResult, RunSpec, Severity, Stage, StageResult
from t5x_harness.version import __version__

_CODE = "PLN01"
_UPDATE = "--plan-golden-update (pytest: --t5x-plan-golden-update)"

_MOST_LINES = 8
"""How many changed lines of a table are shown."""
_LONG = 60
"""From so many characters on, two values are shown below each other."""

_TOLERANCE = 0.01
"""By how much a number may differ, because newer compilers place buffers differently."""

_KEPT = ("hbm_peak", "hbm_needed", "flops_of_a_device", "collective_bytes")
_MODE = "mode"


def check_golden(run: RunResult, places: Mapping[str, str]) -> StageResult:
    """Compares a run with its golden plan, and writes the plan if there is none or the user asks for it.

    Args:
      run: the run with its bindings, and its stages up to plan, which passed; ``settings.plan_golden`` names the file.
      places: folders of this machine that may be in facts, and what stands for each.

    Returns:
      The stage plan, with a finding for what differs, or a fact.
    """
    file, shown = _golden_file(run.spec)
    result = run.stage(Stage.PLAN)
    ours = GoldenPlan.of(run.bindings, run.stages, _places(run) | dict(places))
    if not file.is_file() or run.spec.settings.plan_golden_update:
        return _write(file, shown, ours, result)
    try:
        kept = GoldenPlan.from_text(file.read_text(encoding="utf-8"))
    except (GoldenSyntaxError, UnicodeDecodeError) as error:
        finding = Finding(
            _CODE,
            Severity.ERROR,
            Stage.PLAN,
            f"{shown} is not a golden plan: {error}",
            fix=f"restore it, or rewrite it with {_UPDATE}",
        )
        return _with_finding(result, finding, run.spec)
    finding_, accepted = _compare(kept, _with_numbers(ours, kept), run, shown)
    result = dataclasses.replace(result, silenced=(*result.silenced, *accepted))
    if finding_ is None:
        same = f"{shown}: no difference{', but for bindings whose lines silence it' if accepted else ''}"
        return _with_fact(result, same)
    return _with_finding(result, finding_, run.spec)


def _golden_file(spec: RunSpec) -> tuple[Path, str]:
    """Returns the file of a run's golden plan, and how to show it."""
    assert spec.settings.plan_golden is not None
    file = Path(spec.cwd, spec.settings.plan_golden)
    return file, os.path.relpath(file, spec.cwd) if file.is_relative_to(os.path.abspath(spec.cwd)) else str(file)


def _places(run: RunResult) -> dict[str, str]:
    """Returns the folders that belong to the machine and not to the run."""
    found = {os.path.abspath(run.spec.cwd): ".", os.path.expanduser("~"): "~", sys.prefix: "<python>"}
    return {folder: name for folder, name in found.items() if len(folder) > 1}


def _write(file: Path, shown: str, ours: GoldenPlan, result: StageResult) -> StageResult:
    existed = file.is_file()
    try:
        kept = GoldenPlan.from_text(file.read_text(encoding="utf-8")) if existed else None
        ours = _with_numbers(ours, kept)
        if kept == ours:
            return _with_fact(result, f"{shown}: no difference")
    except (GoldenSyntaxError, UnicodeDecodeError):
        pass  # the file is replaced anyway
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(ours.to_text(*_comments(file)), encoding="utf-8")
    if existed:
        return _with_fact(result, f"{shown}: rewritten")
    doubt = f"whether the plan is as before: {shown} was not there and is written now"
    return dataclasses.replace(_with_fact(result, f"{shown}: written"), not_checked=(*result.not_checked, doubt))


def _comments(file: Path) -> tuple[str, str]:
    """Returns the first lines of a golden plan."""
    return f"Golden plan of {file.stem}, written by t5x-harness {__version__}.", f"To accept a change: {_UPDATE}"


def _with_numbers(ours: GoldenPlan, kept: GoldenPlan | None) -> GoldenPlan:
    """Returns a plan with the kept numbers of the aot stage, which compares them itself if it runs."""
    numbers = kept.facts.get(Stage.AOT.value) if kept is not None else None
    return ours if numbers is None else dataclasses.replace(ours, facts={**ours.facts, Stage.AOT.value: numbers})


def _with_fact(result: StageResult, text: str) -> StageResult:
    """Returns a stage with a fact about its golden plan."""
    return dataclasses.replace(result, facts=(*result.facts, ("golden plan", text)))


def _with_finding(result: StageResult, finding: Finding, spec: RunSpec) -> StageResult:
    """Returns a stage that failed because of a difference, unless the user ignores its code."""
    shown, silenced = split_silenced([finding], spec.settings.ignore, spec.cwd)
    return judged(
        dataclasses.replace(result, findings=(*result.findings, *shown), silenced=(*result.silenced, *silenced))
    )


def _compare(
    kept: GoldenPlan, ours: GoldenPlan, run: RunResult, shown: str
) -> tuple[Finding | None, tuple[Finding, ...]]:
    """Compares two plans.

    Returns:
      The finding for what differs, or None, and the changes of bindings that comments on their lines silence. Such a
      comment only covers its binding, and not what else differs.
    """
    by_name = {name: bound for bound, name in binding_names(run.bindings).items()}
    differ = [n for n in sorted({*kept.bindings, *ours.bindings}) if kept.bindings.get(n) != ours.bindings.get(n)]
    each = [
        Finding(
            _CODE,
            Severity.ERROR,
            Stage.PLAN,
            _binding_line(name, kept.bindings.get(name), ours.bindings.get(name), by_name.get(name)),
            location=_location(by_name[name]) if name in by_name else None,
            binding=name,
        )
        for name in differ
    ]
    changed, accepted = split_silenced(each, (), run.spec.cwd)
    lines = [finding.message for finding in changed]
    facts = [line for stage in dict.fromkeys((*kept.facts, *ours.facts)) for line in _fact_lines(stage, kept, ours)]
    if not lines and not facts:
        return None, accepted
    first = next((finding for finding in changed if finding.binding in by_name), changed[0] if changed else None)
    counts = [_count(len(lines), "binding")] if lines else []
    counts += [_count(sum(not line.startswith(" ") for line in facts), "planned value")] if facts else []
    difference = Finding(
        _CODE,
        Severity.ERROR,
        Stage.PLAN,
        "\n".join([f"the plan differs from {shown} in {' and '.join(counts)}:", *lines, *facts]),
        location=first.location if first else None,
        fix=f"undo it, or if it is meant, rewrite {shown} with {_UPDATE} and commit it",
        binding=first.binding if first else None,
    )
    return difference, accepted


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"


def _binding_line(name: str, old: str | None, new: str | None, bound: BoundValue | None) -> str:
    at = f" ({bound.assignment.location})" if bound else ""
    return f"{name}: {'not bound' if old is None else old} -> {'not bound' if new is None else new}{at}"


def _location(bound: BoundValue) -> Location | None:
    """Returns where the binding is, if that is in a file."""
    place = bound.assignment.location
    return None if place.file.startswith("<") else place


def _fact_lines(stage: str, kept: GoldenPlan, ours: GoldenPlan) -> Iterator[str]:
    """Yields what changed in one stage's facts; of a fact with several lines, the lines that differ."""
    before, after = kept.facts.get(stage, {}), ours.facts.get(stage, {})
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name), after.get(name)
        if old is not None and new is not None and _unaligned(old) == _unaligned(new):
            continue
        if old is None or new is None:
            yield f"{name}: {_one_line(old)} -> {_one_line(new)}"
        elif "\n" in old + new or len(old + new) > _LONG:
            yield f"{name}:"
            yield from _changed_lines(old, new)
        else:
            yield f"{name}: {old} -> {new}"


def _changed_lines(old: str, new: str) -> Iterator[str]:
    """Yields the lines of a table that changed; the file shows all of them once it is rewritten."""
    before, after = _unaligned(old), _unaligned(new)
    changed = [f"  {line}" for line in difflib.ndiff(before, after) if line[:1] in "+-"]
    yield from changed[:_MOST_LINES]
    if len(changed) > _MOST_LINES:
        yield f"  and {len(changed) - _MOST_LINES} more lines"


def _unaligned(value: str) -> list[str]:
    """Returns the lines of a value with tables unaligned, because a column's width depends on all of its cells."""
    return [re.sub(r" {2,}", "  ", line.strip()) for line in value.splitlines()]


def _one_line(value: str | None) -> str:
    if value is None:
        return "nothing"
    first, newline, _ = value.partition("\n")
    return f"{first} ..." if newline else first


def check_golden_numbers(spec: RunSpec, result: StageResult) -> StageResult:
    """Compares the numbers of an aot stage with those in the run's golden plan, or adds them if it has none.

    Args:
      spec: the run, whose golden plan the plan stage has written or found to be the same.
      result: the result of the stage, which passed.

    Returns:
      The stage, with a finding for what differs, or a fact.
    """
    ours = {f"{m.name} of {m.of}": f"{m.value:.0f} {m.unit}".strip() for m in result.measures if m.name in _KEPT}
    if not ours:  # nothing was compiled
        return result
    ours = {_MODE: str(spec.settings.aot), **ours}
    file, shown = _golden_file(spec)
    kept = GoldenPlan.from_text(file.read_text(encoding="utf-8"))
    before = kept.facts.get(Stage.AOT.value)
    lines = [*_differences(before, ours)] if before is not None else []
    if before is None or (lines and spec.settings.plan_golden_update):
        written = dataclasses.replace(kept, facts={**kept.facts, Stage.AOT.value: ours})
        file.write_text(written.to_text(*_comments(file)), encoding="utf-8")
        return _with_fact(result, f"{shown}: numbers written")
    if not lines:
        return _with_fact(result, f"{shown}: no number differs by more than {_TOLERANCE:.0%}")
    finding = Finding(
        _CODE,
        Severity.ERROR,
        Stage.AOT,
        "\n".join([f"what the TPU compiler says differs from {shown} by more than {_TOLERANCE:.0%}:", *lines]),
        fix=f"undo it, or if it is meant, rewrite {shown} with {_UPDATE} and commit it",
    )
    return _with_finding(result, finding, spec)


def _differences(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for name in dict.fromkeys((*before, *now)):
        old, new = before.get(name), now.get(name)
        if old is None or new is None:
            yield f"{name}: {old or 'nothing'} -> {new or 'nothing'}"
        elif name == _MODE:
            if old != new:
                yield f"{name}: {old} -> {new}"
        elif not math.isclose(_number(old), _number(new), rel_tol=_TOLERANCE):
            yield f"{name}: {old} -> {new}{_by(_number(old), _number(new))}"


def _number(text: str) -> float:
    try:
        return float(text.partition(" ")[0])
    except ValueError:
        return math.nan  # differs from every number


def _by(old: float, new: float) -> str:
    return f" ({(new - old) / old:+.1%})" if old > 0 else ""
