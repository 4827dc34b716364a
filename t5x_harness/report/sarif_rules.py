"""The rules as SARIF describes them: what a code means, why it matters, and two examples."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from t5x_harness.rule import ROOMS, Example, Rule, all_rules
from t5x_harness.spec import Finding, Stage

__all__ = ["rule_descriptors"]


def rule_descriptors(stages: Iterable[Stage], findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """A ``reportingDescriptor`` for each rule of these stages, and for each further code among the findings.

    Returns:
      One object a code, ordered by code. Codes that stages give for what only a run shows have no class, and so only
      an id.
    """
    described: dict[str, dict[str, Any]] = {}
    for rule in all_rules(*(stage for stage in stages if stage in ROOMS)):
        described.setdefault(rule.code, _descriptor(rule))
    for finding in findings:
        described.setdefault(finding.code, {"id": finding.code})
    return [described[code] for code in sorted(described)]


def _descriptor(rule: type[Rule]) -> dict[str, Any]:
    text = _help(rule)
    return {
        "id": rule.code,
        "name": rule.__name__,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "help": {"text": text, "markdown": text},  # indented examples are code in both
        "defaultConfiguration": {"level": rule.severity.value},
        "properties": {"stage": rule.stage.value},
    }


def _help(rule: type[Rule]) -> str:
    """Why the rule is there, and its examples."""
    return "\n\n".join([rule.why, "Bad:", *_example(rule.bad), "Good:", *_example(rule.good)])


def _example(example: Example) -> Iterator[str]:
    """The files of an example and what the command line adds to them, as indented blocks."""
    given = "".join(f"\n--gin.{'='.join(binding.split(' = ', 1))}" for binding in example.bindings)
    yield textwrap.indent(example.gin.rstrip("\n") + given, "    ")
    for name, text in example.files.items():
        yield f"with {name}:"
        yield textwrap.indent(text.rstrip("\n"), "    ")
