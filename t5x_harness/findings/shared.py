"""A mistake that several tasks share is one finding, whatever their number."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from t5x_harness.spec import Finding

_TASK = re.compile(r"\btask ([^\s:,;()]+)")
_NAMED = 3


def merge_tasks(findings: Iterable[Finding]) -> list[Finding]:
    """Merges findings that differ only in the name of a task: the first of them names the other tasks, too.

    A finding whose message names no task, or more than one, stays as it is.
    """
    alike: dict[Finding, list[Finding]] = {}
    for finding in findings:
        named = len(_TASK.findall(finding.message)) == 1
        key = dataclasses.replace(finding, message=_TASK.sub("task *", finding.message)) if named else finding
        alike.setdefault(key, []).append(finding)
    return [_one_for_all(first, others) for first, *others in alike.values()]


def _one_for_all(first: Finding, others: list[Finding]) -> Finding:
    names = [_TASK.findall(other.message)[0] for other in others if other != first]
    if not names:
        return first
    left = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    tasks = f"task{'s' if len(names) > 1 else ''} {', '.join(names[:_NAMED])}{left}"
    return dataclasses.replace(first, message=f"{first.message}; the same goes for {tasks}")
