"""The globs of matchGlob."""

from __future__ import annotations

import pytest

from t5x_harness.google.storage.errors import Invalid
from t5x_harness.google.storage.names import compile_glob, literal_prefix


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
        ("{,a*}{b,c}x", ["bx", "acx", "axbx", "cx"], ["x", "a/bx", "abc"]),
        ("*/**/*.gin", ["a/b/c.gin", "a/b/c/.gin"], ["a/b.gin", "c.gin"]),
    ],
)
def test_what_matches(glob: str, matching: list[str], others: list[str]) -> None:
    compiled = compile_glob(glob)
    assert [name for name in matching + others if compiled.matches(name)] == matching
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
        compile_glob(glob)
    assert caught.value.message == f"Invalid glob {glob!r}: {fault}"


@pytest.mark.parametrize(("glob", "prefix"), [("a/b*", "a/b"), ("a{b,c}", "a"), ("a?", "a"), ("[a]", ""), ("a", "a")])
def test_literal_prefixes(glob: str, prefix: str) -> None:
    assert literal_prefix(glob) == prefix


@pytest.mark.parametrize("glob", ["*a" * 400 + "*b", "{a,a}" * 200 + "b", "**a*" * 256, "{a*,*a}" * 100 + "b"])
def test_no_glob_takes_for_ever(glob: str) -> None:
    """With ``re``, two dozen of these parts take longer than anybody waits."""
    compiled = compile_glob(glob)
    assert not compiled.matches("a" * 150 + "c")
    assert len(compiled._steps) <= 400


def test_a_glob_longer_than_any_name() -> None:
    with pytest.raises(Invalid, match="it has 1025 characters, more than 1024"):
        compile_glob("*" * 1025)
