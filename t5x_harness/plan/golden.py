"""The golden plan: a run's final bindings and planned facts as a text, which is kept next to the configs to compare.

    [bindings]
    BATCH_SIZE = 128
    train.total_steps = %TRAIN_STEPS

    [plan]
    mesh = data 8 x model 1

The text is the same on every machine: names are sorted, the machine's paths are replaced, and facts that depend on the
machine are left out. Lines that begin with ``#`` are not compared. A difference is a finding that names the bindings.
The numbers of the aot stage are kept in the same file if it ran, and compared with a tolerance.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from t5x_harness.findings.silencing import split_silenced
from t5x_harness.findings.work import judged
from t5x_harness.report.table import PREEMPTION
from t5x_harness.spec import BoundValue, Finding, Location, RunResult, RunSpec, Severity, Stage, StageResult
from t5x_harness.system.secrets import masked_binding
from t5x_harness.version import __version__

_BINDINGS = "bindings"
_STAGES = (Stage.RESOLVE, Stage.PLAN)
CHECKPOINT_FITS = "checkpoint fits"
"""A fact that is known only on a machine with access to the run's storage; it is not kept."""

_SECTION = re.compile(r"\[([a-z]+)\]")
_INDENT = "    "
_ABSOLUTE = re.compile(r"(?:^|(?<=[\s'\"(\[,=]))/(?:[^\s/'\",:;()\[\]]+/)+(?=[^\s/])", re.MULTILINE)

_UPDATE = "--plan-golden-update (pytest: --t5x-plan-golden-update)"

_MOST_LINES = 8
"""The largest number of changed lines of a table to show."""
_LONG = 60
"""The least number of characters at which two values are shown one below the other."""

_TOLERANCE = 0.01
"""The relative difference that a number may have, because newer compilers place buffers differently."""

_KEPT = ("hbm_peak", "hbm_needed", "flops_of_a_device", "collective_bytes")
_MODE = "mode"


class GoldenSyntaxError(ValueError):
    """The text is not a golden plan; the message names the line."""


@dataclasses.dataclass(frozen=True)
class GoldenPlan:
    """The part of a plan that is kept.

    Attributes:
      bindings: every bound name and its value as gin text without secrets, macros by name.
      facts: the facts of resolve and plan, in the order in which they are shown.
    """

    bindings: Mapping[str, str]
    facts: Mapping[str, Mapping[str, str]]

    @classmethod
    def of(cls, bindings: Sequence[BoundValue], stages: Sequence[StageResult], places: Mapping[str, str]) -> GoldenPlan:
        """Takes the part to keep from a run.

        Args:
          bindings: the run's bindings.
          stages: its stages; only resolve and plan count.
          places: folders of this machine, and the text that replaces each.
        """
        names = binding_names(bindings)
        values = {
            names[bound]: masked_binding(names[bound], _portable(bound.assignment.value, places)) for bound in bindings
        }
        facts = {
            stage.stage.value: {
                name: _ABSOLUTE.sub(".../", _portable(value, places))
                for name, value in stage.facts
                if name not in (CHECKPOINT_FITS, PREEMPTION)  # the latter follows from the bindings
            }
            for stage in stages
            if stage.stage in _STAGES
        }
        return cls(dict(sorted(values.items())), facts)

    def to_text(self, *comments: str) -> str:
        """Returns the file's text, with comments at its top."""
        sections = {_BINDINGS: self.bindings, **self.facts}
        lines = [f"# {comment}" for comment in comments]
        for title, values in sections.items():
            lines += ["", f"[{title}]"]
            for name, value in values.items():
                lines += _entry(name, value)
        return "\n".join(lines).lstrip("\n") + "\n"

    @classmethod
    def from_text(cls, text: str) -> GoldenPlan:
        """Reads a text that :meth:`to_text` wrote.

        Raises:
          GoldenSyntaxError: a line is not one that :meth:`to_text` writes.
        """
        sections: dict[str, dict[str, str]] = {_BINDINGS: {}}
        section: dict[str, str] | None = None
        name = ""
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip() or line.startswith("#"):
                continue
            if found := _SECTION.fullmatch(line):
                section, name = sections.setdefault(found[1], {}), ""
            elif section is not None and name and line.startswith(_INDENT):
                section[name] = f"{section[name]}\n{line[len(_INDENT) :]}".lstrip("\n")
            elif section is not None and " =" in line and not line.startswith(" "):
                name, _, value = line.partition(" =")
                section[name] = value.removeprefix(" ")
            else:
                raise GoldenSyntaxError(f"line {number} is neither [a section] nor NAME = VALUE: {line.strip()!r}")
        return cls(sections.pop(_BINDINGS), sections)


def binding_names(bindings: Sequence[BoundValue]) -> dict[BoundValue, str]:
    """Returns a unique name for each binding, as short as possible and independent of imports."""
    short = [_name(bound, parts=2) for bound in bindings]
    return {
        bound: name if short.count(name) == 1 else _name(bound, parts=100)
        for bound, name in zip(bindings, short, strict=True)
    }


def _name(bound: BoundValue, parts: int) -> str:
    if bound.configurable is None:
        return bound.name
    scope, slash, _ = bound.name.rpartition("/")
    target = ".".join(bound.configurable.removeprefix("__main__.").split(".")[-parts:])
    return f"{scope}{slash}{target}.{bound.name.rpartition('.')[2]}"


def _entry(name: str, value: str) -> Iterator[str]:
    """Yields the lines of one name and value; a value of several lines starts on the line after its name."""
    if "\n" not in value:
        yield f"{name} = {value}".rstrip()
        return
    yield f"{name} ="
    yield from (f"{_INDENT}{line}".rstrip() for line in value.splitlines())


def _portable(text: str, places: Mapping[str, str]) -> str:
    for folder in sorted(places, key=len, reverse=True):
        text = re.sub(rf"{re.escape(folder)}(?=[/'\"\s,:;)]|$)", places[folder], text)
    return "\n".join(line.rstrip() for line in text.splitlines())


def check_golden(run: RunResult, places: Mapping[str, str]) -> StageResult:
    """Compares a run with its golden plan, and writes the plan if none exists or the user asks for it.

    Args:
      run: the run with its bindings, and its stages up to plan, which passed; ``settings.plan_golden`` names the file.
      places: folders of this machine that may be in facts, and the text that replaces each.

    Returns:
      The plan stage, with a finding for any difference, or a fact.
    """
    file, shown = _golden_file(run.spec)
    result = run.stage(Stage.PLAN)
    of_machine = {os.path.abspath(run.spec.cwd): ".", os.path.expanduser("~"): "~", sys.prefix: "<python>"}
    folders = {folder: name for folder, name in of_machine.items() if len(folder) > 1}
    ours = GoldenPlan.of(run.bindings, run.stages, folders | dict(places))
    existed, update = file.is_file(), run.spec.settings.plan_golden_update
    kept = None
    try:
        kept = GoldenPlan.from_text(file.read_text(encoding="utf-8")) if existed else None
    except (GoldenSyntaxError, UnicodeDecodeError) as error:
        if not update:
            message, fix = f"{shown} is not a golden plan: {error}", f"restore it, or rewrite it with {_UPDATE}"
            return _with_finding(result, _difference(Stage.PLAN, message, fix), run.spec)
    if kept is not None and Stage.AOT.value in kept.facts:  # if the aot stage runs, it compares its own numbers
        ours = dataclasses.replace(ours, facts={**ours.facts, Stage.AOT.value: kept.facts[Stage.AOT.value]})
    if kept == ours:
        return _with_fact(result, f"{shown}: no difference")
    if kept is None or update:
        _write(file, ours)
        if existed:
            return _with_fact(result, f"{shown}: rewritten")
        doubt = f"whether the plan is as before: {shown} was not there and is written now"
        return dataclasses.replace(_with_fact(result, f"{shown}: written"), not_checked=(*result.not_checked, doubt))
    finding, accepted = _compare(kept, ours, run, shown)
    result = dataclasses.replace(result, silenced=(*result.silenced, *accepted))
    if finding is None:
        same = f"{shown}: no difference{', but for bindings whose lines silence it' if accepted else ''}"
        return _with_fact(result, same)
    return _with_finding(result, finding, run.spec)


def _write(file: Path, plan: GoldenPlan) -> None:
    """Writes a golden plan with comments that say what it is and how to accept a change."""
    file.parent.mkdir(parents=True, exist_ok=True)
    comments = f"Golden plan of {file.stem}, written by t5x-harness {__version__}.", f"To accept a change: {_UPDATE}"
    file.write_text(plan.to_text(*comments), encoding="utf-8")


def _difference(
    stage: Stage, message: str, fix: str | None, location: Location | None = None, binding: str | None = None
) -> Finding:
    return Finding("PLN01", Severity.ERROR, stage, message, location, fix, binding)


def _golden_file(spec: RunSpec) -> tuple[Path, str]:
    """Returns the file of a run's golden plan, and its path as it is shown."""
    assert spec.settings.plan_golden is not None
    file = Path(spec.cwd, spec.settings.plan_golden)
    return file, os.path.relpath(file, spec.cwd) if file.is_relative_to(os.path.abspath(spec.cwd)) else str(file)


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
      The finding for any difference, or None, and the changes of bindings that comments on their lines silence. Such a
      comment covers only its binding, not other differences.
    """
    places = {name: bound.assignment.location for bound, name in binding_names(run.bindings).items()}
    each = []
    for name in sorted({*kept.bindings, *ours.bindings}):
        old, new = kept.bindings.get(name), ours.bindings.get(name)
        if old != new:
            place = places.get(name)
            line = f"{name}: {'not bound' if old is None else old} -> {'not bound' if new is None else new}"
            line += f" ({place})" if place else ""
            in_file = place if place and not place.file.startswith("<") else None
            each.append(_difference(Stage.PLAN, line, None, in_file, name))
    changed, accepted = split_silenced(each, (), run.spec.cwd)
    lines = [finding.message for finding in changed]
    facts = [line for stage in dict.fromkeys((*kept.facts, *ours.facts)) for line in _fact_lines(stage, kept, ours)]
    if not lines and not facts:
        return None, accepted
    first = next((finding for finding in changed if finding.binding in places), changed[0] if changed else None)
    numbers = {"binding": len(lines), "planned value": sum(not line.startswith(" ") for line in facts)}
    counts = " and ".join(f"{n} {what}{'s' if n != 1 else ''}" for what, n in numbers.items() if n)
    return _difference(
        Stage.PLAN,
        "\n".join([f"the plan differs from {shown} in {counts}:", *lines, *facts]),
        f"undo it, or if it is meant, rewrite {shown} with {_UPDATE} and commit it",
        first.location if first else None,
        first.binding if first else None,
    ), accepted


def _fact_lines(stage: str, kept: GoldenPlan, ours: GoldenPlan) -> Iterator[str]:
    """Yields the changes in one stage's facts; for a fact with several lines, the lines that differ."""
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
    """Yields the lines of a table that changed; the rewritten file shows all of them."""
    before, after = _unaligned(old), _unaligned(new)
    changed = [f"  {line}" for line in difflib.ndiff(before, after) if line[:1] in "+-"]
    yield from changed[:_MOST_LINES]
    if len(changed) > _MOST_LINES:
        yield f"  and {len(changed) - _MOST_LINES} more lines"


def _unaligned(value: str) -> list[str]:
    """Returns the lines of a value, without the alignment of tables, because one cell can change a column's width."""
    return [re.sub(r" {2,}", "  ", line.strip()) for line in value.splitlines()]


def _one_line(value: str | None) -> str:
    if value is None:
        return "nothing"
    first, newline, _ = value.partition("\n")
    return f"{first} ..." if newline else first


def check_golden_numbers(spec: RunSpec, result: StageResult) -> StageResult:
    """Compares the numbers of an aot stage with the numbers in the run's golden plan, or adds them if it has none.

    Args:
      spec: the run, whose golden plan the plan stage has written or found unchanged.
      result: the result of the stage, which passed.

    Returns:
      The stage, with a finding for any difference, or a fact.
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
        _write(file, written)
        return _with_fact(result, f"{shown}: numbers written")
    if not lines:
        return _with_fact(result, f"{shown}: no number differs by more than {_TOLERANCE:.0%}")
    message = "\n".join([f"what the TPU compiler says differs from {shown} by more than {_TOLERANCE:.0%}:", *lines])
    fix = f"undo it, or if it is meant, rewrite {shown} with {_UPDATE} and commit it"
    return _with_finding(result, _difference(Stage.AOT, message, fix), spec)


def _differences(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for name in dict.fromkeys((*before, *now)):
        old, new = before.get(name), now.get(name)
        if old is None or new is None:
            yield f"{name}: {old or 'nothing'} -> {new or 'nothing'}"
        elif name == _MODE:
            if old != new:
                yield f"{name}: {old} -> {new}"
        elif not math.isclose(_number(old), _number(new), rel_tol=_TOLERANCE):
            grown = f" ({_number(new) / _number(old) - 1:+.1%})" if _number(old) > 0 else ""
            yield f"{name}: {old} -> {new}{grown}"


def _number(text: str) -> float:
    try:
        return float(text.partition(" ")[0])
    except ValueError:
        return math.nan  # differs from every number
