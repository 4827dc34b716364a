"""What SARIF reports say of the rules behind their findings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from t5x_harness.findings.rule import Rule
from t5x_harness.rulebook.codes import every_code, rules_by_code
from t5x_harness.rulebook.pages import page


def rule_descriptors(codes: Iterable[str]) -> list[dict[str, Any]]:
    """Returns a ``reportingDescriptor`` for each code, once, ordered by code.

    Args:
      codes: the codes of the findings; a code that is not ours gets only an id.
    """
    rules, known = rules_by_code(), every_code()
    return [
        _descriptor(code, rules[code])
        if code in rules
        else {"id": code} | ({"shortDescription": {"text": known[code].title}} if code in known else {})
        for code in sorted(set(codes))
    ]


def _descriptor(code: str, rules: Sequence[Rule[Any]]) -> dict[str, Any]:
    """Returns what the code's page says. There is no ``helpUri``: the pages have no public address."""
    mistake, text = rules[0].mistake, page(code, rules)
    return {
        "id": code,
        "name": rules[0].name,
        "shortDescription": {"text": mistake.title},
        "fullDescription": {"text": mistake.why},
        "help": {"text": text, "markdown": text},
        "defaultConfiguration": {"level": mistake.severity.value},
        "properties": {"stages": [rule.stage.value for rule in rules]},
    }
