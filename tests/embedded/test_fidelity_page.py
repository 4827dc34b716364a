"""docs/fidelity.md: its tables are made from the embedded T5X, and what it excuses is excused for a reason."""

from __future__ import annotations

import json
import re
import types
from pathlib import Path

import pytest

from t5x_harness.runtime import fidelity

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "fidelity.md").read_text()


@pytest.mark.embedded("the page is about it")
def test_the_tables_are_what_the_embedded_t5x_has() -> None:
    api = json.loads((REPOSITORY / "tests" / "reference" / "api.json").read_text())
    made = fidelity.with_tables(PAGE, api)
    command = "python -m t5x_harness.runtime.fidelity tests/reference/api.json docs/fidelity.md"
    assert made == PAGE, f"docs/fidelity.md is out of date; run: {command}"


def test_what_is_absent_or_different_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Model:
        def run(self, steps: int = 1) -> None: ...

    module = types.ModuleType("t5x.made_up")
    module.Model = Model
    module.train = lambda model, steps: None
    monkeypatch.setitem(__import__("sys").modules, "t5x.made_up", module)

    def signature(*names: str, **defaults: str) -> list[dict[str, str]]:
        return [{"name": name} for name in names] + [{"name": n, "default": text} for n, text in defaults.items()]

    record = {
        "Model": {"kind": "class", "members": {"run": signature("self", steps="2"), "stop": signature("self")}},
        "train": {"kind": "function", "signature": signature("model")},
        "evaluate": {"kind": "function", "signature": []},
    }
    assert fidelity.compare("t5x.made_up", record) == fidelity.Compared(
        3,
        ["evaluate"],
        [
            "Model: run: steps is 1 by default instead of 2",
            "Model: no member stop",
            "train: takes model, steps instead of model",
        ],
    )


def test_every_excused_test_has_a_reason() -> None:
    section = PAGE.partition("## T5X's own unit tests")[2]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    assert len(rows) > 2
    for name, reason in rows:
        assert re.fullmatch(r" `\w+(\.\w+)*`(, `\w+`)* ", name)
        assert len(reason.split()) > 5, name
