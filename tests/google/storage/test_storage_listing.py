"""Listings are in the order of UTF-8, have prefixes, offsets and pages, and show the bucket's current content."""

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
    """The prefixes have many objects below them, in the tree and aside."""
    for folder in ("a", "b", "b/c", "d"):
        fill(store, *(f"{folder}/{index}" for index in range(25)), f"{folder}//x")
    found = store.list("data", ListingQuery(delimiter="/"))
    assert (items(found), found.prefixes) == ([], ("a/", "b/", "d/"))
    assert store.list("data", ListingQuery(delimiter="/", prefix="b/")).prefixes == ("b//", "b/c/")


def test_a_query_that_is_not_unicode_is_refused(store: ObjectStore) -> None:
    with pytest.raises(Invalid, match=r"Invalid query: '\\ud800' is not Unicode text"):
        store.list("data", ListingQuery(prefix="\ud800"))
