"""The globs of matchGlob."""

from __future__ import annotations

import pytest

from t5x_harness.google.storage.errors import Invalid
from t5x_harness.google.storage.globs import glob_to_regex, literal_prefix


@pytest.mark.parametrize(
    ("glob", "matching", "others"),
    [
        ("*.txt", ["a.txt", ".txt"], ["a/b.txt", "a.txt2", "atxt"]),
        ("**.txt", ["a.txt", "a/b.txt", "a\tb.txt"], ["a.tx"]),
        ("a/**/b", ["a/x/b", "a/x/y/b", "a//b"], ["a/b", "b"]),
        ("a?c", ["abc", "aéc"], ["ac", "a/c", "abbc"]),
        ("[a-c]x", ["ax", "cx"], ["dx", "x", "/x"]),
        ("[!a-c]x", ["dx", "!x"], ["ax", "/x"]),
        ("[^a]x", ["bx"], ["ax", "^", "/x"]),
        ("[]]x", ["]x"], ["x"]),
        ("[!]]x", ["ax"], ["]x"]),
        (r"[\d]x", ["dx", "\\x"], ["1x"]),
        ("[+-9]", ["+", "5"], ["/", "a"]),
        ("{a,b/*}.txt", ["a.txt", "b/c.txt"], ["c.txt", "b/c/d.txt", "a,b/*.txt"]),
        ("{a,{b,c}}", ["a", "b", "c"], ["{b", "a,b"]),
        ("a,b}", ["a,b}"], ["a", "b"]),
        (r"\*\{", ["*{"], ["a{", r"\*{"]),
        ("a\\", ["a\\"], ["a"]),
        ("a.b(c)|d", ["a.b(c)|d"], ["axb(c)|d", "d"]),
        ("", [""], ["a"]),
    ],
)
def test_what_matches(glob: str, matching: list[str], others: list[str]) -> None:
    regex = glob_to_regex(glob)
    assert [name for name in matching + others if regex.fullmatch(name)] == matching
    assert all(name.startswith(literal_prefix(glob)) for name in matching)


@pytest.mark.parametrize(
    ("glob", "fault"),
    [
        ("a[b", "a bracket is not closed"),
        ("[]", "a bracket is not closed"),
        ("{a,b", "a brace is not closed"),
        ("[z-a]", "bad character range z-a at position 6"),
    ],
)
def test_what_is_refused(glob: str, fault: str) -> None:
    with pytest.raises(Invalid) as caught:
        glob_to_regex(glob)
    assert caught.value.message == f"Invalid glob {glob!r}: {fault}"


@pytest.mark.parametrize(("glob", "prefix"), [("a/b*", "a/b"), ("a{b,c}", "a"), ("a?", "a"), ("[a]", ""), ("a", "a")])
def test_literal_prefixes(glob: str, prefix: str) -> None:
    assert literal_prefix(glob) == prefix
