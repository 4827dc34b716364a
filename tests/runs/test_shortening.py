"""No finding is longer than a page, regardless of its parts."""

import json

from t5x_harness.spec import Finding, Severity, Stage
from t5x_harness.system.texts import LONGEST, shorten


def finding(message: str, fix: str = "") -> Finding:
    return Finding("CKP07", Severity.ERROR, Stage.PLAN, message, fix=fix)


def test_a_long_list_keeps_its_first_items_and_a_count() -> None:
    names = [f"target/encoder/layers_{n}/mlp/wi/kernel" for n in range(200)]
    assert finding(f"which it does not have. It has: {names}. Stop").message == (
        "which it does not have. It has: ['target/encoder/layers_0/mlp/wi/kernel', "
        "'target/encoder/layers_1/mlp/wi/kernel', 'target/encoder/layers_2/mlp/wi/kernel' and 197 more]. Stop"
    )


def test_what_is_no_list_loses_its_middle() -> None:
    text = "a" + " word" * 2000 + " end"
    for shown in (finding(text).message, finding("short", text).fix or ""):
        assert len(shown) <= LONGEST
        assert shown.startswith("a word word")
        assert shown.endswith("word end")
        assert "characters left out" in shown


def test_other_messages_stay_as_they_are() -> None:
    text = "features are {'inputs': (8, 512), 'targets': (8, 114)} and not [1, 2, 3, 4, 5, 6]"
    assert finding(text).message == text
    assert shorten("x" * 799) == "x" * 799


def test_a_shortened_finding_survives_json() -> None:
    first = finding("y" * 50_000)
    assert Finding.from_json(json.loads(json.dumps(first.to_json()))) == first
