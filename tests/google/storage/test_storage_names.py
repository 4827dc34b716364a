"""Names are checked against Google's rules, and a refusal names the broken rule; the globs of matchGlob match names."""

import pytest

from t5x_harness.google.storage.errors import Invalid
from t5x_harness.google.storage.names import check_bucket_name, check_object_name, compile_glob, literal_prefix


@pytest.mark.parametrize(
    "name",
    ["abc", "a-b_c", "1a2", "my.bucket.example.com", "a" * 63, ".".join(["a" * 63] * 3) + ".b", "1.2.3", "1.2.3.4.5"],
)
def test_bucket_names_that_google_takes(name: str) -> None:
    check_bucket_name(name)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("", "it must have 3 to 63 characters, and has 0"),
        ("ab", "it must have 3 to 63 characters, and has 2"),
        ("a" * 64, "it must have 3 to 63 characters, and has 64"),
        (".".join(["a" * 60] * 4), "it must have 3 to 222 characters, and has 243"),
        ("a" * 64 + ".b", "the parts between dots may have at most 63 characters"),
        ("Data", "lower-case letters, digits, '-', '_' and '.' are allowed, with a letter or digit at both ends"),
        ("-data", "lower-case letters, digits, '-', '_' and '.' are allowed, with a letter or digit at both ends"),
        ("data_", "lower-case letters, digits, '-', '_' and '.' are allowed, with a letter or digit at both ends"),
        ("dätä", "lower-case letters, digits, '-', '_' and '.' are allowed, with a letter or digit at both ends"),
        ("a/b", "lower-case letters, digits, '-', '_' and '.' are allowed, with a letter or digit at both ends"),
        ("abc\n", "lower-case letters, digits, '-', '_' and '.' are allowed, with a letter or digit at both ends"),
        ("192.168.5.4", "it must not be an IP address"),
        ("goog-data", "it must not begin with 'goog'"),
        ("my-google-data", "it must not contain 'google' or a misspelling of it"),
        ("my-g00gle-data", "it must not contain 'google' or a misspelling of it"),
    ],
)
def test_bucket_names_that_google_refuses(name: str, fault: str) -> None:
    with pytest.raises(Invalid) as caught:
        check_bucket_name(name)
    assert caught.value.message == f"Invalid bucket name: '{name}': {fault}"


@pytest.mark.parametrize(
    "name", ["a", "/", "//", "a/", "a/../b", "./a", " ", "\0", "\t", "é" * 512, "😀", "...", ".well-known/acme"]
)
def test_object_names_that_google_takes(name: str) -> None:
    check_object_name(name)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("", "it must have 1 to 1024 bytes of UTF-8, and has 0"),
        ("é" * 513, "it must have 1 to 1024 bytes of UTF-8, and has 1026"),
        ("a\rb", "it must not contain a carriage return or a line feed"),
        ("a\nb", "it must not contain a carriage return or a line feed"),
        (".", "it must not be '.' or '..'"),
        ("..", "it must not be '.' or '..'"),
        (".well-known/acme-challenge/x", "it must not begin with '.well-known/acme-challenge/'"),
        ("\ud800", "it is not Unicode text"),
    ],
)
def test_object_names_that_google_refuses(name: str, fault: str) -> None:
    with pytest.raises(Invalid) as caught:
        check_object_name(name)
    assert caught.value.message == f"Invalid object name: {name[:80]!r}: {fault}"


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
    """With ``re``, two dozen of these parts would take practically forever."""
    compiled = compile_glob(glob)
    assert not compiled.matches("a" * 150 + "c")
    assert len(compiled._steps) <= 400


def test_a_glob_longer_than_any_name() -> None:
    with pytest.raises(Invalid, match="it has 1025 characters, more than 1024"):
        compile_glob("*" * 1025)
