"""Buckets are created, changed and removed by Google's rules."""

import os
from pathlib import Path

import pytest

from t5x_harness.google.storage.errors import Conflict, NoSuchResource, NotModified, PreconditionFailed
from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.google.storage.values import Preconditions


def test_a_patch_merges_and_the_metageneration_grows(store: ObjectStore) -> None:
    store.create_bucket("abc", {"labels": {"a": "1", "b": "2"}, "location": "EU"})
    patched = store.patch_bucket("abc", {"labels": {"a": None, "c": "3"}, "location": None, "versioning": {}})
    assert patched.metageneration == 2
    assert patched.fields == {"labels": {"b": "2", "c": "3"}, "versioning": {}}
    assert store.bucket("abc") == patched


def test_conditions_on_buckets_are_on_their_metageneration(store: ObjectStore) -> None:
    with pytest.raises(PreconditionFailed):
        store.patch_bucket("data", {"x": 1}, Preconditions(metageneration_match=2))
    with pytest.raises(NotModified):
        store.bucket("data", Preconditions(metageneration_not_match=1))
    with pytest.raises(PreconditionFailed):
        store.delete_bucket("data", Preconditions(metageneration_match=2))
    assert store.bucket("data").fields == {}


def test_only_an_empty_bucket_is_deleted(store: ObjectStore, tree: Path) -> None:
    store.write("data", "a/b", b"x")
    with pytest.raises(Conflict, match="The bucket you tried to delete is not empty"):
        store.delete_bucket("data")
    store.delete("data", "a/b")
    (tree / "left" / "over").mkdir(parents=True)
    store.delete_bucket("data")
    assert not tree.exists()
    with pytest.raises(NoSuchResource, match="The specified bucket does not exist"):
        store.bucket("data")
    with pytest.raises(NoSuchResource, match="The specified bucket does not exist"):
        store.delete_bucket("data")


def test_files_that_cannot_be_objects_are_not_deleted_with_a_bucket(store: ObjectStore, tree: Path) -> None:
    os.mkfifo(tree / "pipe")
    with pytest.raises(Conflict, match="has files that cannot be objects"):
        store.delete_bucket("data")
    assert (tree / "pipe").exists()


def test_a_folder_made_by_somebody_else_is_a_bucket(store: ObjectStore, root: Path) -> None:
    (root / "buckets" / "outside").mkdir()
    (root / "buckets" / "No Bucket").mkdir()
    (root / "buckets" / "outside" / "a").write_bytes(b"x")
    assert [bucket.name for bucket in store.buckets()] == ["data", "outside"]
    assert store.stat("outside", "a").size == 1
    with pytest.raises(Conflict):
        store.create_bucket("outside")
