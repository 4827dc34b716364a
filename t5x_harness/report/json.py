"""The report as one JSON document, for other programs; ``report.schema.json``, next to this module, describes it."""

import dataclasses
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from t5x_harness.findings.printable import printable_json, shown_edits, without_secrets
from t5x_harness.report.report import Report, RunRow, run_outcome
from t5x_harness.spec import Assignment, Finding, Location, RunResult, Stage, StageResult

SCHEMA = 2
"""The version of the document: it grows when a key changes its meaning or is removed, not when one is added."""

_STEPS = {"first": "first_step", "last": "last_step", "to_train": "steps_to_train"}

_LINE = 400
"""The columns of one line, which is enough for a binding and the include statements above it."""

SCHEMA_FILE = Path(__file__).with_name("report.schema.json")
"""The JSON Schema of the document."""


def document(report: Report) -> dict[str, Any]:
    """Returns the report as plain values.

    Returns:
      ``schema``; ``passed``; ``seconds`` of waiting, and how many of them were for imports; ``findings`` and
      ``not_checked``: of all stages in one list, each with its ``run``;
      ``runs``: one object per run with its stages, its bindings and its outcome.
    """
    return {
        "schema": SCHEMA,
        "passed": report.passed,
        "seconds": report.waited,
        "import_seconds": report.imports.seconds,
        **({"imports": dict(report.imports.packages)} if report.imports.packages else {}),
        "findings": [_finding(finding, row) for row in report.rows for finding in row.findings],
        "not_checked": [{"run": row.name, "text": text} for row in report.rows for text in row.not_checked],
        "runs": [_run(row) for row in report.rows],
    }


def render(report: Report) -> str:
    """Returns the document as text that ends with a newline."""
    return f"{json_text(document(report))}\n"


def json_text(value: Any) -> str:
    """Writes a JSON document in ASCII, without secrets, in which no line begins a command to a CI service.

    Args:
      value: plain values. An object that fits into a line is written in one, so that a search shows all of it.
    """
    return printable_json(_laid_out(without_secrets(value), ""))


def _laid_out(value: Any, indent: str) -> str:
    line = json.dumps(value, allow_nan=False)
    if len(indent) + len(line) <= _LINE or not value or not isinstance(value, (dict, list)):
        return line
    deeper = f"{indent}  "
    if isinstance(value, dict):
        items = [f"{json.dumps(str(key))}: {_laid_out(item, deeper)}" for key, item in value.items()]
    else:
        items = [_laid_out(item, deeper) for item in value]
    first, last = "{}" if isinstance(value, dict) else "[]"
    return f"{first}\n{deeper}" + f",\n{deeper}".join(items) + f"\n{indent}{last}"


def _finding(finding: Finding, row: RunRow) -> dict[str, Any]:
    return {
        "code": finding.code,
        "severity": finding.severity.value,
        "stage": finding.stage.value,
        **_place(finding.location),
        "message": finding.message,
        "fix": finding.fix,
        "binding": finding.binding,
        "edits": [dataclasses.asdict(edit) for edit in shown_edits(finding.edits)],
        "run": row.name,
    }


def _place(location: Location | None) -> dict[str, Any]:
    """Returns a location as keys of the object to which it belongs."""
    if location is None:
        return {"file": None, "line": None, "included_from": []}
    chain = [{"file": at.file, "line": at.line} for at in location.included_from]
    return {"file": location.file, "line": location.line, "included_from": chain}


def _run(row: RunRow) -> dict[str, Any]:
    result = row.result
    steps = {key: _planned(result, name) for key, name in _STEPS.items()}
    return {
        "name": row.name,
        "outcome": run_outcome(result).value,
        "mode": result.spec.mode.value if result.spec.mode else None,
        "slice": result.spec.slice,
        "mesh": _planned(result, "mesh"),
        "runtime": result.runtime,
        "seconds": row.seconds,
        "spec": result.spec.to_json(),
        "stages": [_stage(stage) for stage in result.stages],
        "bindings": [
            {
                "name": bound.name,
                "configurable": bound.configurable,
                **_assignment(bound.assignment),
                "overridden": [_assignment(assignment) for assignment in bound.overridden],
            }
            for bound in result.bindings
        ],
        "steps": result.steps if any(s.stage is Stage.TRAIN and s.exercised for s in result.stages) else None,
        "planned_steps": {key: value[""] for key, value in steps.items() if value} or None,
        "metrics": {tag: {str(step): _number(value) for step, value in v.items()} for tag, v in result.metrics.items()},
        "checkpoints": [dataclasses.asdict(checkpoint) for checkpoint in result.checkpoints],
        "predictions": len(result.predictions),
        "standins": list(result.standins),
        "model_dir": result.model_dir,
        "log": result.log,
    }


def _number(value: float) -> float | str:
    """Returns a number, or its name if JSON cannot express it: ``nan``, ``inf``, ``-inf``."""
    return value if math.isfinite(value) else str(value)


def _planned(result: RunResult, name: str) -> dict[str, float] | None:
    """Returns the plan stage's measures of one name, by their subjects; None if the run did not get that far."""
    plan = (measure for stage in result.stages if stage.stage is Stage.PLAN for measure in stage.measures)
    return {measure.of: measure.value for measure in plan if measure.name == name} or None


def _stage(stage: StageResult) -> dict[str, Any]:
    """Returns a stage without its findings, which are at the top of the document and name the stage."""
    return {
        "stage": stage.stage.value,
        "outcome": stage.outcome.value,
        "measures": [{**dataclasses.asdict(each), "value": _number(each.value)} for each in stage.measures],
        "facts": list(_facts(stage)),
        "not_checked": list(stage.not_checked),
        "changes": [dataclasses.asdict(change) for change in stage.changes],
        "exercised": {"count": stage.exercised, "of": stage.stage.counts},
        "seconds": stage.seconds,
        **({"parts": dict(stage.parts), "counts": dict(stage.counts)} if stage.parts else {}),
        "log_tail": stage.log_tail,
    }


def _facts(stage: StageResult) -> Iterator[dict[str, Any]]:
    """Yields each fact by its name: as a table if it is one, otherwise as the text that people read."""
    tables = {table.name: table for table in stage.tables}
    for name, value in stage.facts:
        if table := tables.get(name):
            rows = [[_number(cell) if isinstance(cell, float) else cell for cell in row] for row in table.rows]
            yield {"name": name, "columns": list(table.columns), "rows": rows}
        else:
            yield {"name": name, "value": value}


def _assignment(assignment: Assignment) -> dict[str, Any]:
    return {"value": assignment.value, **_place(assignment.location)}
