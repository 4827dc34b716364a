"""The report as one JSON document, for other programs; ``report.schema.json`` beside this module describes it."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from t5x_harness.report.report import Report, RunRow, run_outcome
from t5x_harness.spec import Assignment, BoundValue, Finding, Location, StageResult

__all__ = ["SCHEMA", "SCHEMA_FILE", "document", "render"]

SCHEMA = 1
"""Version of the document: it grows when a key changes its meaning or goes, not when one is added."""

SCHEMA_FILE = Path(__file__).with_name("report.schema.json")
"""The JSON Schema of the document."""


def document(report: Report) -> dict[str, Any]:
    """The report as plain values.

    Returns:
      ``schema``; ``passed``; ``findings`` and ``not_checked``: those of all stages in one list, each with the ``run``
      it belongs to; ``runs``: one object a run with its stages, its bindings and what came of it.
    """
    return {
        "schema": SCHEMA,
        "passed": report.passed,
        "findings": [_finding(finding, row) for row in report.rows for finding in row.findings],
        "not_checked": [{"run": row.name, "text": text} for row in report.rows for text in row.not_checked],
        "runs": [_run(row) for row in report.rows],
    }


def render(report: Report) -> str:
    """The document as text that ends with a newline."""
    return json.dumps(document(report), indent=2, allow_nan=False) + "\n"


def _finding(finding: Finding, row: RunRow) -> dict[str, Any]:
    return {
        "code": finding.code,
        "severity": finding.severity.value,
        "stage": finding.stage.value,
        **_place(finding.location),
        "message": finding.message,
        "fix": finding.fix,
        "binding": finding.binding,
        "edits": [dataclasses.asdict(edit) for edit in finding.edits],
        "run": row.name,
    }


def _place(location: Location | None) -> dict[str, Any]:
    """Where something stands, as keys of the object that it belongs to."""
    if location is None:
        return {"file": None, "line": None, "included_from": []}
    chain = [{"file": at.file, "line": at.line} for at in location.included_from]
    return {"file": location.file, "line": location.line, "included_from": chain}


def _run(row: RunRow) -> dict[str, Any]:
    result = row.result
    return {
        "name": row.name,
        "outcome": run_outcome(result).value,
        "mode": result.spec.mode.value if result.spec.mode else None,
        "slice": result.spec.slice,
        "mesh": row.mesh,
        "runtime": result.runtime,
        "seconds": row.seconds,
        "spec": result.spec.to_json(),
        "stages": [_stage(stage) for stage in result.stages],
        "bindings": [_bound_value(bound) for bound in result.bindings],
        "steps": result.steps,
        "metrics": {tag: {str(step): _number(value) for step, value in v.items()} for tag, v in result.metrics.items()},
        "checkpoints": [dataclasses.asdict(checkpoint) for checkpoint in result.checkpoints],
        "predictions": len(result.predictions),
        "standins": list(result.standins),
        "model_dir": result.model_dir,
        "log": result.log,
    }


def _number(value: float) -> float | str:
    """A number; where JSON has none for it, its name: ``nan``, ``inf``, ``-inf``."""
    return value if math.isfinite(value) else str(value)


def _stage(stage: StageResult) -> dict[str, Any]:
    """A stage without its findings, which stand at the top of the document and name it."""
    return {
        "stage": stage.stage.value,
        "outcome": stage.outcome.value,
        "facts": [{"name": name, "value": value} for name, value in stage.facts],
        "not_checked": list(stage.not_checked),
        "changes": [dataclasses.asdict(change) for change in stage.changes],
        "exercised": stage.exercised,
        "seconds": stage.seconds,
        "log_tail": stage.log_tail,
    }


def _bound_value(bound: BoundValue) -> dict[str, Any]:
    return {
        "name": bound.name,
        "configurable": bound.configurable,
        **_assignment(bound.assignment),
        "overridden": [_assignment(assignment) for assignment in bound.overridden],
    }


def _assignment(assignment: Assignment) -> dict[str, Any]:
    return {"value": assignment.value, **_place(assignment.location)}
