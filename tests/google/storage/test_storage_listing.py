"""Listings: in the order of UTF-8, with prefixes, offsets and pages, as the bucket is now."""

from __future__ import annotations

from pathlib import Path

import pytest

from t5x_harness.google.storage.errors import Invalid
from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.google.storage.values import Listing, ListingQuery


def fill(store: ObjectStore, *names: str) -> None:
    for name in names:
        store.write("data", name, b"x")


def items(listing: Listing) -> list[str]:
    return [found.name for found in listing.objects]


def pages(store: ObjectStore, **query: object) -> list[Listing]:
    found = [store.list("data", ListingQuery(**query))]
    while found[-1].next_page is not None:
        found.append(store.list("data", ListingQuery(**query | {"page_token": found[-1].next_page})))
    return found


def test_names_come_in_the_order_of_their_utf8_bytes(store: ObjectStore) -> None:
    names = ["a", "a!", "a/", "a//b", "a/b", "a/b/c", "a0", "aé", "b", "z", "é", "ﬀ", "😀"]
    fill(store, *reversed(names))
    assert items(store.list("data")) == names == sorted(names, key=str.encode)


def test_the_example_of_the_reference(store: ObjectStore) -> None:
    fill(store, "a/b", "a/c", "d", "e", "e/f", "e/g/h")
    top = store.list("data", ListingQuery(delimiter="/"))
    assert (items(top), top.prefixes) == (["d", "e"], ("a/", "e/"))
    below = store.list("data", ListingQuery(delimiter="/", prefix="e/"))
    assert (items(below), below.prefixes) == (["e/f"], ("e/g/",))


@pytest.mark.parametrize(
    ("query", "objects", "prefixes"),
    [
        ({"prefix": "a"}, ["a", "a/", "a/b", "a/b/c", "ab"], ()),
        ({"prefix": "a/b"}, ["a/b", "a/b/c"], ()),
        ({"prefix": "a/b/c/d"}, [], ()),
        ({"prefix": "nothing"}, [], ()),
        ({"delimiter": "/"}, ["a", "ab", "x--y--z"], ("a/",)),
        ({"delimiter": "/", "include_trailing_delimiter": True}, ["a", "a/", "ab", "x--y--z"], ("a/",)),
        ({"delimiter": "/", "prefix": "a/"}, ["a/", "a/b"], ("a/b/",)),
        ({"delimiter": "/", "prefix": "a"}, ["a", "ab"], ("a/",)),
        ({"delimiter": "--"}, ["a", "a/", "a/b", "a/b/c", "ab"], ("x--",)),
        ({"delimiter": "--", "prefix": "x--"}, [], ("x--y--",)),
        ({"delimiter": "b"}, ["a", "a/", "x--y--z"], ("a/b", "ab")),
        ({"delimiter": "b", "include_trailing_delimiter": True}, ["a", "a/", "a/b", "ab", "x--y--z"], ("a/b", "ab")),
        ({"start_offset": "a/b"}, ["a/b", "a/b/c", "ab", "x--y--z"], ()),
        ({"end_offset": "a/b"}, ["a", "a/"], ()),
        ({"start_offset": "a/", "end_offset": "ab"}, ["a/", "a/b", "a/b/c"], ()),
        ({"start_offset": "a/b/", "delimiter": "/"}, ["ab", "x--y--z"], ("a/",)),
        ({"start_offset": "ab", "end_offset": "aa"}, [], ()),
        ({"prefix": "a/", "start_offset": "b"}, [], ()),
        ({"match_glob": "a*"}, ["a", "ab"], ()),
        ({"match_glob": "**b"}, ["a/b", "ab"], ()),
        ({"match_glob": "a/*", "prefix": "a/b"}, ["a/b"], ()),
        ({"match_glob": "a*/", "delimiter": "/"}, [], ("a/",)),
        ({"match_glob": "x*", "delimiter": "/"}, ["x--y--z"], ()),
    ],
)
def test_queries(store: ObjectStore, query: dict[str, object], objects: list[str], prefixes: tuple[str, ...]) -> None:
    fill(store, "a", "a/", "a/b", "a/b/c", "ab", "x--y--z")
    found = store.list("data", ListingQuery(**query))
    assert (items(found), found.prefixes, found.next_page) == (objects, prefixes, None)
    small = pages(store, **query, max_results=1)
    assert [name for page in small for name in items(page)] == objects
    assert [prefix for page in small for prefix in page.prefixes] == list(prefixes)


def test_pages_are_full_and_the_last_has_no_token(store: ObjectStore) -> None:
    fill(store, *(f"{index:03}" for index in range(10)))
    assert [len(page.objects) for page in pages(store, max_results=5)] == [5, 5]
    assert [len(page.objects) for page in pages(store, max_results=4)] == [4, 4, 2]


def test_a_page_has_at_most_1000_results(store: ObjectStore, tree: Path) -> None:
    for index in range(1003):
        (tree / f"{index:04}").touch()
    assert [len(page.objects) for page in pages(store, max_results=5000)] == [1000, 3]


def test_objects_that_come_and_go_between_pages(store: ObjectStore) -> None:
    fill(store, "a", "b", "c", "d")
    first = store.list("data", ListingQuery(max_results=2))
    store.delete("data", "a")
    store.delete("data", "c")
    fill(store, "bb", "cc")
    second = store.list("data", ListingQuery(max_results=2, page_token=first.next_page))
    assert (items(first), items(second)) == (["a", "b"], ["cc", "d"])


def test_folders_are_passed_over_whole(store: ObjectStore) -> None:
    """Prefixes with many objects below them, in the tree and aside."""
    for folder in ("a", "b", "b/c", "d"):
        fill(store, *(f"{folder}/{index}" for index in range(25)), f"{folder}//x")
    found = store.list("data", ListingQuery(delimiter="/"))
    assert (items(found), found.prefixes) == ([], ("a/", "b/", "d/"))
    assert store.list("data", ListingQuery(delimiter="/", prefix="b/")).prefixes == ("b//", "b/c/")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"max_results": 0}, "Invalid value for maxResults: 0: it must be at least 1"),
        ({"page_token": "%"}, "Invalid page token: '%'"),
        ({"match_glob": "a[b"}, "Invalid glob 'a[b': a bracket is not closed"),
        ({"match_glob": "*", "delimiter": "-"}, "Invalid delimiter with matchGlob: '-': it must be '/' or left out"),
        ({"prefix": "\ud800"}, "Invalid query: '\\ud800' is not Unicode text"),
    ],
)
def test_queries_that_are_refused(store: ObjectStore, query: dict[str, object], message: str) -> None:
    with pytest.raises(Invalid) as caught:
        store.list("data", ListingQuery(**query))
    assert caught.value.message == message
