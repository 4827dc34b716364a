"""Listings of the JSON API: every combination of parameters, in pages of several sizes."""

import itertools
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from expected_listing import expected_listing

from t5x_harness.google.storage.values import ListingQuery

NAMES = ["a", "a/", "a/b", "a/b/c.txt", "a/é.txt", "ab", "b.txt", "b/c", "b/c/d.txt", "ü/☃"]
COMBINATIONS = list(
    itertools.product(["", "a", "a/", "b/"], ["", "/"], ["", "a/b", "b"], ["", "b/d"], ["", "**.txt", "*/", "{a,b}/**"])
)


@pytest.fixture
def filled(call: Any) -> Any:
    for name in NAMES:
        call("POST", f"/upload/storage/v1/b/bucket/o?uploadType=media&name={quote(name, safe='')}", b"")
    return call


@pytest.mark.parametrize("trailing", [False, True])
def test_every_combination(filled: Any, trailing: bool) -> None:
    for prefix, delimiter, start, end, glob in COMBINATIONS:
        asked = {"prefix": prefix, "delimiter": delimiter, "startOffset": start, "endOffset": end, "matchGlob": glob}
        asked = {key: value for key, value in asked.items() if value}
        if trailing:
            asked["includeTrailingDelimiter"] = "true"
        wanted = expected_listing(NAMES, ListingQuery(prefix, delimiter, glob or None, start, end or None, trailing))
        for most in (1, 3, 1000):
            objects: list[str] = []
            prefixes: list[str] = []
            token: dict[str, str] = {}
            for _ in range(len(NAMES) + 1):
                target = f"/storage/v1/b/bucket/o?{urlencode({**asked, **token, 'maxResults': most})}"
                page = filled("GET", target).json
                assert page["kind"] == "storage#objects"
                objects += [it["name"] for it in page.get("items", [])]
                prefixes += page.get("prefixes", [])
                if "nextPageToken" not in page:
                    break
                token = {"pageToken": page["nextPageToken"]}
            assert (objects, prefixes) == wanted, (asked, most)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("maxResults=0", "Invalid value for maxResults: 0: it must be at least 1"),
        ("maxResults=all", "Invalid value for maxResults: 'all' is not a number"),
        ("pageToken=%25", "Invalid page token: '%'"),
        ("matchGlob=a%5Bb", "Invalid glob 'a[b': a bracket is not closed"),
        ("matchGlob=*&delimiter=-", "Invalid delimiter with matchGlob: '-': it must be '/' or left out"),
    ],
)
def test_what_cannot_be_meant(filled: Any, query: str, message: str) -> None:
    refused = filled("GET", f"/storage/v1/b/bucket/o?{query}")
    assert (refused.status, refused.json["error"]["message"]) == (400, message)


def test_buckets_come_in_pages(call: Any) -> None:
    for name in ("other-1", "other-2", "third"):
        assert call("POST", "/storage/v1/b?project=p", f'{{"name": "{name}"}}'.encode()).status == 200
    seen, token = [], ""
    while True:
        page = call("GET", f"/storage/v1/b?project=p&maxResults=1&pageToken={token}").json
        seen += [it["name"] for it in page["items"]]
        if not (token := quote(page.get("nextPageToken", ""))):
            break
    assert seen == ["bucket", "other-1", "other-2", "third"]
    page = call("GET", "/storage/v1/b?project=p&prefix=other").json
    assert ([it["name"] for it in page["items"]], "nextPageToken" in page) == (["other-1", "other-2"], False)
    for query in ("maxResults=0", "pageToken=%25"):
        assert call("GET", f"/storage/v1/b?project=p&{query}").status == 400
