"""Buckets: those in the database, and every folder in ``buckets/`` whose name is valid for a bucket."""

import dataclasses
import os
import time
from collections.abc import Mapping

from t5x_harness.buckets.addresses import bucket_fault
from t5x_harness.buckets.emulated import note_undeclared
from t5x_harness.google.storage.database import Database
from t5x_harness.google.storage.disk import StoreLayout
from t5x_harness.google.storage.errors import Conflict, NoSuchBucket
from t5x_harness.google.storage.names import check_bucket_name
from t5x_harness.google.storage.values import Bucket, Preconditions


class Buckets:
    """The few buckets of a store, in memory; with ``create``, a bucket is created on first use. Needs the lock."""

    def __init__(self, layout: StoreLayout, database: Database, *, create: bool = False) -> None:
        self._create = create
        self._layout = layout
        self._database = database
        self._known = {bucket.name: bucket for bucket in database.buckets()}

    def create(self, name: str, fields: Mapping[str, object]) -> Bucket:
        """Makes a bucket; raises Invalid if Google would refuse the name, and Conflict if it exists."""
        check_bucket_name(name)
        if self._find(name) is not None:
            message = "Your previous request to create the named bucket succeeded and you already own it."
            raise Conflict(message, code="BucketAlreadyOwnedByYou")
        return self._keep(Bucket(name, time.time_ns() // 1000, fields=dict(fields)))

    def get(self, name: str) -> Bucket:
        """Returns a bucket; raises NoSuchBucket if it does not exist."""
        found = self._find(name)
        if found is None and self._create and bucket_fault(name) is None:
            note_undeclared(self._layout.root, name)
            return self._keep(Bucket(name, time.time_ns() // 1000))
        if found is None:
            raise NoSuchBucket(name)
        return found

    def all(self) -> list[Bucket]:
        """Returns all buckets, by name."""
        for entry in os.scandir(self._layout.buckets):
            self._find(entry.name)
        return [self._known[name] for name in sorted(self._known)]

    def patch(self, name: str, changes: Mapping[str, object], preconditions: Preconditions) -> Bucket:
        """Applies a JSON merge patch to the fields; raises the errors of ``ObjectStore.patch_bucket``."""
        bucket = self.get(name)
        preconditions.check(bucket)
        fields = merge_patch(bucket.fields, changes)
        return self._keep(dataclasses.replace(bucket, metageneration=bucket.metageneration + 1, fields=fields))

    def delete(self, name: str) -> list[str]:
        """Removes a bucket that has no objects; returns the incoming bodies of its unfinished uploads.

        Raises Conflict if its folder has files that are not objects, such as pipes or names that are not Unicode.
        """
        folder = f"{self._layout.buckets}/{name}"
        for path, _, _ in os.walk(folder, topdown=False):
            try:
                os.rmdir(path)
            except OSError as error:
                raise Conflict(
                    f"The bucket you tried to delete is not empty: {path} has files that cannot be objects.",
                    code="BucketNotEmpty",
                ) from error
        with self._database.transaction():
            bodies = self._database.forget_bucket(name)
        del self._known[name]
        return bodies

    def _find(self, name: str) -> Bucket | None:
        known = self._known.get(name)
        if known is None and bucket_fault(name) is None and os.path.isdir(f"{self._layout.buckets}/{name}"):
            return self._keep(Bucket(name, time.time_ns() // 1000))  # someone made its folder
        return known

    def _keep(self, bucket: Bucket) -> Bucket:
        folder = f"{self._layout.buckets}/{bucket.name}"
        is_new = not os.path.isdir(folder)
        os.makedirs(folder, exist_ok=True)
        try:
            self._database.put_bucket(bucket)
        except BaseException:
            if is_new:
                os.rmdir(folder)  # otherwise the folder would count as a bucket
            raise
        self._known[bucket.name] = bucket
        return bucket


def merge_patch(old: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    """Merges by RFC 7396: None removes a member, objects are merged, and any other value replaces."""
    merged = dict(old)
    for name, value in changes.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping):
            below = merged.get(name)
            merged[name] = merge_patch(below if isinstance(below, Mapping) else {}, value)
        else:
            merged[name] = value
    return merged
