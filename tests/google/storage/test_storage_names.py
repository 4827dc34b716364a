"""Names are checked by Google's rules, and each refusal says which."""

from __future__ import annotations

import pytest

from t5x_harness.google.storage.errors import Invalid
from t5x_harness.google.storage.names import check_bucket_name, check_object_name, is_bucket_name, is_object_name


@pytest.mark.parametrize(
    "name",
    ["abc", "a-b_c", "1a2", "my.bucket.example.com", "a" * 63, ".".join(["a" * 63] * 3) + ".b", "1.2.3", "1.2.3.4.5"],
)
def test_bucket_names_that_google_takes(name: str) -> None:
    check_bucket_name(name)
    assert is_bucket_name(name)


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
    assert not is_bucket_name(name)


@pytest.mark.parametrize(
    "name", ["a", "/", "//", "a/", "a/../b", "./a", " ", "\0", "\t", "é" * 512, "😀", "...", ".well-known/acme"]
)
def test_object_names_that_google_takes(name: str) -> None:
    check_object_name(name)
    assert is_object_name(name)


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
    assert not is_object_name(name)
