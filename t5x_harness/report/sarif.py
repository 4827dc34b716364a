"""The findings as SARIF 2.1.0, which GitHub's code scanning and many editors read."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from t5x_harness.findings.printable import printable, shown_edits
from t5x_harness.report.json import json_text
from t5x_harness.report.report import PlacedFinding, Report, SourceLine, place_in, placed_findings, source_root
from t5x_harness.report.terminal import stage_failure
from t5x_harness.spec import Finding, Outcome
from t5x_harness.version import __version__

SCHEMA_URI = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
SOURCE_ROOT = "%SRCROOT%"
FINGERPRINT = "t5xHarnessFinding/v1"
"""The name of the fingerprint, with the version of its algorithm."""

_LINE_NUMBERS = re.compile(r":\d+|\blines? \d+")


Describe = Callable[[Iterable[str]], list[dict[str, Any]]]
"""Returns a ``reportingDescriptor`` for each code, once, ordered by code."""


def render(report: Report, describe: Describe) -> str:
    """Returns the document as text that ends with a newline; see :func:`document`."""
    return f"{json_text(document(report, describe))}\n"


def document(report: Report, describe: Describe) -> dict[str, Any]:
    """Returns the document as plain values.

    Paths are relative to the root of the repository, so that they mean the same on every machine.  A finding outside
    is shown at the line that leads there.

    Args:
      report: the runs.
      describe: returns the descriptors of rules; see :func:`t5x_harness.rulebook.pages.rule_descriptors`.
    """
    root = source_root(report)
    findings = placed_findings(report, root)
    rules = describe(placed.finding.code for placed in findings)
    index = {rule["id"]: number for number, rule in enumerate(rules)}
    run = {
        "tool": {"driver": {"name": "t5x-harness", "semanticVersion": __version__, "rules": rules}},
        "invocations": [{"executionSuccessful": True, **_notifications(report)}],
        "originalUriBaseIds": {SOURCE_ROOT: {"description": {"text": "The root of the repository."}}},
        "columnKind": "unicodeCodePoints",
        "results": [
            _result(placed, index[placed.finding.code], fingerprint, root)
            for placed, fingerprint in zip(findings, _fingerprints(findings), strict=True)
        ],
    }
    return {"$schema": SCHEMA_URI, "version": "2.1.0", "runs": [run]}


def _result(placed: PlacedFinding, rule_index: int, fingerprint: str, root: Path) -> dict[str, Any]:
    finding = placed.finding
    fix = f"\nfix: {finding.fix}" if finding.fix else ""
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": rule_index,
        "level": finding.severity.value,
        "message": {"text": printable(f"{placed.text}{fix}")},
        "locations": [{"physicalLocation": _physical(placed.place)}] if placed.place is not None else [],
        "partialFingerprints": {FINGERPRINT: fingerprint},
        "properties": {"stage": finding.stage.value, "runs": list(printable(placed.runs))},
    }
    if finding.binding is not None:
        result["properties"]["binding"] = printable(finding.binding)
    if placed.chain:
        result["relatedLocations"] = [
            {"id": number, "message": {"text": "included from here"}, "physicalLocation": _physical(place)}
            for number, place in enumerate(placed.chain, start=1)
        ]
    if changes := _changes(finding, placed.cwd, root):
        description = {"text": printable(finding.fix or finding.message)}
        result["fixes"] = [{"description": description, "artifactChanges": changes}]
    return result


def _physical(place: SourceLine) -> dict[str, Any]:
    return {"artifactLocation": _artifact(place), "region": {"startLine": place.line}}


def _artifact(place: SourceLine) -> dict[str, str]:
    return {"uri": quote(place.file, errors="surrogateescape"), "uriBaseId": SOURCE_ROOT}


def _changes(finding: Finding, cwd: str, root: Path) -> list[dict[str, Any]]:
    """Returns the edits by file, or none at all if one of them is to a file outside the repository."""
    by_file: dict[SourceLine, list[dict[str, Any]]] = {}
    for edit in shown_edits(finding.edits):
        place = place_in(root, cwd, edit.file, 1)
        if place is None:
            return []
        # A region of whole lines, up to the first column of the line after them; an insertion deletes nothing.
        region = {"startLine": edit.first, "startColumn": 1, "endLine": edit.last + 1, "endColumn": 1}
        replacement = {"deletedRegion": region, "insertedContent": {"text": edit.text}}
        by_file.setdefault(place, []).append(replacement)
    return [
        {"artifactLocation": _artifact(place), "replacements": replacements} for place, replacements in by_file.items()
    ]


def _fingerprints(findings: Sequence[PlacedFinding]) -> Iterator[str]:
    """Names findings by their content and their file, so that they keep their names when lines move."""
    seen: Counter[str] = Counter()
    for placed in findings:
        what = placed.finding.binding or _LINE_NUMBERS.sub("", placed.text)
        file = placed.place.file if placed.place is not None else ""
        text = "\0".join((placed.finding.code, file, what))
        seen[text] += 1
        yield hashlib.sha256(f"{text}\0{seen[text]}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _notifications(report: Report) -> Mapping[str, Any]:
    """Returns what was not checked, and stages that failed without a finding, as notifications of the tool."""
    notifications: list[dict[str, Any]] = []
    for row in report.rows:
        silent = (stage for stage in row.result.stages if stage.outcome is Outcome.FAILED and not stage.errors)
        notifications += [_notification("error", f"{row.name}: {stage_failure(stage)}") for stage in silent]
        notifications += [_notification("note", f"{row.name}: not checked: {text}") for text in row.not_checked]
    return {"toolExecutionNotifications": notifications} if notifications else {}


def _notification(level: str, text: str) -> dict[str, Any]:
    return {"level": level, "message": {"text": printable(text)}}
