"""The codes as SARIF describes them: what each means, why it matters, and a bad and a good example."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from t5x_harness.rule import Rule
from t5x_harness.rule_pages import OTHER_CODES, page, rules_by_code

__all__ = ["rule_descriptors"]


def rule_descriptors(codes: Iterable[str]) -> list[dict[str, Any]]:
    """A ``reportingDescriptor`` for every code that there is, ordered by code.

    Args:
      codes: those of the findings; one that is none of ours gets an id and nothing else.
    """
    described: dict[str, dict[str, Any]] = {code: {"id": code} for code in codes}
    described |= {code: {"id": code, "shortDescription": {"text": text}} for code, text in OTHER_CODES.items()}
    described |= {code: _descriptor(code, rules) for code, rules in rules_by_code().items()}
    return [described[code] for code in sorted(described)]


def _descriptor(code: str, rules: Sequence[type[Rule]]) -> dict[str, Any]:
    """What the code's page says. There is no ``helpUri``: the pages have no public address."""
    first, text = rules[0], page(code, rules)
    return {
        "id": code,
        "name": first.__name__,
        "shortDescription": {"text": first.title},
        "fullDescription": {"text": first.why},
        "help": {"text": text, "markdown": text},
        "defaultConfiguration": {"level": first.severity.value},
        "properties": {"stages": [rule.stage.value for rule in rules]},
    }
