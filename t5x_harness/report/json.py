"""The report as one JSON document, for other programs."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from t5x_harness.report.report import Report, RunRow, run_outcome

__all__ = ["SCHEMA", "document", "render"]

SCHEMA = 1
"""Version of the document: it grows when a key changes its meaning or goes, not when one is added."""


def document(report: Report) -> dict[str, Any]:
    """The report as plain values.

    Returns:
      ``schema``; ``passed``; ``runs``: one object a run with its spec, stages and what came of it; ``findings`` and
      ``not_checked``: those of all stages in one list, each with the ``run`` it belongs to.
    """
    return {
        "schema": SCHEMA,
        "passed": report.passed,
        "runs": [_run(row) for row in report.rows],
        "findings": [{"run": row.name, **dataclasses.asdict(f)} for row in report.rows for f in row.findings],
        "not_checked": [{"run": row.name, "text": text} for row in report.rows for text in row.not_checked],
    }


def render(report: Report) -> str:
    """The document as text that ends with a newline."""
    return json.dumps(document(report), indent=2, ensure_ascii=False) + "\n"


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
        "stages": [stage.to_json() for stage in result.stages],
        "steps": result.steps,
        "metrics": {tag: {str(step): value for step, value in v.items()} for tag, v in result.metrics.items()},
        "checkpoints": [dataclasses.asdict(checkpoint) for checkpoint in result.checkpoints],
        "predictions": len(result.predictions),
        "standins": list(result.standins),
        "model_dir": result.model_dir,
        "log": result.log,
    }
