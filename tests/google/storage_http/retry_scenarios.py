"""The scenarios of Google's retry conformance, version 1, and the calls of google-cloud-storage that carry them out."""

import dataclasses
import io
from collections.abc import Callable, Mapping
from typing import Any

CHUNK = 2 << 20
LARGE = bytes(range(256)) * (9 << 12)  # 9 MB: an upload in five parts


@dataclasses.dataclass(frozen=True)
class Scenario:
    """Attributes:
    cases: the instructions of each case, between spaces.
    methods: the methods, without ``storage.``.
    conditional: whether the calls name a generation, a metageneration or an entity tag.
    succeeds: whether the client's calls succeed.
    """

    cases: tuple[str, ...]
    methods: str
    conditional: bool
    succeeds: bool


IDEMPOTENT = (
    "bucket_acl.list buckets.delete buckets.get buckets.getIamPolicy buckets.insert buckets.list "
    "buckets.lockRetentionPolicy buckets.testIamPermissions default_object_acl.list hmacKey.delete hmacKey.get "
    "hmacKey.list notifications.delete notifications.get notifications.list object_acl.list objects.delete objects.get "
    "objects.insert objects.list objects.patch serviceaccount.get"
)
CONDITIONAL = (
    "buckets.patch buckets.setIamPolicy buckets.update objects.compose objects.copy objects.rewrite objects.update"
)
NOT_IDEMPOTENT = "hmacKey.create notifications.insert"
TWICE = "return-503 return-503", "return-reset-connection return-reset-connection", "return-reset-connection return-503"
ONCE = "return-503", "return-reset-connection"
FINAL = "return-400", "return-401"
MIXED = "return-503 return-400", "return-reset-connection return-401"
PARTS = (
    "return-reset-connection return-503",
    "return-408",
    "return-503-after-256K",
    "return-503-after-8192K return-408",
)
STREAMS = "return-broken-stream return-broken-stream", "return-broken-stream-after-256K"

SCENARIOS: Mapping[int, Scenario] = {
    1: Scenario(TWICE, IDEMPOTENT.replace("objects.insert ", "").replace("objects.patch ", ""), False, True),
    2: Scenario(TWICE, f"{CONDITIONAL} objects.delete objects.insert objects.patch", True, True),
    3: Scenario(ONCE, f"{CONDITIONAL} hmacKey.update", False, False),
    4: Scenario(ONCE, NOT_IDEMPOTENT, False, False),
    5: Scenario(FINAL, f"{IDEMPOTENT} {CONDITIONAL} {NOT_IDEMPOTENT} hmacKey.update", False, False),
    6: Scenario(MIXED, f"{IDEMPOTENT} {CONDITIONAL}", True, False),
    7: Scenario(PARTS, "objects.insert", True, True),
    8: Scenario(STREAMS, "objects.get", False, True),
}


@dataclasses.dataclass(frozen=True)
class Place:
    """What a call works on: a bucket with a large object, a notification configuration and an HMAC key.

    Attributes:
      bucket: the bucket, by the client whose requests meet the faults.
      numbers: the conditions of a conditional call: generation, metageneration, and that of the bucket.
    """

    client: Any
    bucket: Any
    conditional: bool
    numbers: tuple[int, int, int]
    notification: str
    key: str

    @property
    def blob(self) -> Any:
        return self.bucket.blob("large")

    @property
    def new(self) -> Any:
        return self.bucket.blob("new", chunk_size=CHUNK)

    def when(self, **conditions: Any) -> dict[str, Any]:
        return conditions if self.conditional else {}

    @property
    def is_new(self) -> dict[str, Any]:
        return self.when(if_generation_match=0)


def _delete_key(at: Place) -> None:
    key = at.client.get_hmac_key_metadata(at.key)
    key.state = "INACTIVE"
    key.update()
    key.delete()


def _update_key(at: Place) -> None:
    key = type(at.client.get_hmac_key_metadata(at.key))(at.client, access_id=at.key)
    key.state = "INACTIVE"
    key.update()


def _lock(at: Place) -> None:
    at.bucket.retention_period = 60
    at.bucket.patch()
    at.bucket.lock_retention_policy()


def _patch_bucket(at: Place, how: str = "patch") -> None:
    at.bucket.storage_class = "COLDLINE"
    getattr(at.bucket, how)(**at.when(if_metageneration_match=at.numbers[2]))


def _patch(at: Place, how: str = "patch") -> None:
    blob = at.blob
    blob.metadata = {"a": "b"}
    getattr(blob, how)(**at.when(if_metageneration_match=at.numbers[1]))


def _set_policy(at: Place) -> None:
    policy = at.bucket.get_iam_policy(requested_policy_version=3)
    policy.bindings.append({"role": "roles/storage.objectViewer", "members": {"user:someone@example.com"}})
    if not at.conditional:
        policy.etag = None
    at.bucket.set_iam_policy(policy)


def _download(at: Place) -> None:
    assert at.blob.download_as_bytes() == LARGE


def _download_a_range(at: Place) -> None:
    into = io.BytesIO()
    at.blob.download_to_file(into, start=1000, end=700_000)
    assert into.getvalue() == LARGE[1000:700_001]


def _upload_in_parts(at: Place) -> None:
    new = at.new
    new.upload_from_file(io.BytesIO(LARGE), size=len(LARGE), **at.is_new)
    assert new.size == len(LARGE)


CALLS: Mapping[str, tuple[Callable[[Place], Any], ...]] = {
    "bucket_acl.list": (lambda at: at.bucket.acl.reload(),),
    "buckets.delete": (lambda at: at.bucket.delete(force=True),),
    "buckets.get": (lambda at: at.client.get_bucket(at.bucket.name), lambda at: at.bucket.exists()),
    "buckets.getIamPolicy": (lambda at: at.bucket.get_iam_policy(),),
    "buckets.insert": (lambda at: at.client.create_bucket(f"{at.bucket.name}-2"),),
    "buckets.list": (lambda at: list(at.client.list_buckets()),),
    "buckets.lockRetentionPolicy": (_lock,),
    "buckets.patch": (
        _patch_bucket,
        lambda at: at.bucket.acl.save_predefined("private", **at.when(if_metageneration_match=at.numbers[2])),
    ),
    "buckets.setIamPolicy": (_set_policy,),
    "buckets.testIamPermissions": (lambda at: at.bucket.test_iam_permissions(["storage.buckets.get"]),),
    "buckets.update": (lambda at: _patch_bucket(at, "update"),),
    "default_object_acl.list": (lambda at: at.bucket.default_object_acl.reload(),),
    "hmacKey.create": (lambda at: at.client.create_hmac_key("someone@example.com"),),
    "hmacKey.delete": (_delete_key,),
    "hmacKey.get": (lambda at: at.client.get_hmac_key_metadata(at.key),),
    "hmacKey.list": (lambda at: list(at.client.list_hmac_keys()),),
    "hmacKey.update": (_update_key,),
    "notifications.delete": (lambda at: at.bucket.notification(notification_id=at.notification).delete(),),
    "notifications.get": (lambda at: at.bucket.get_notification(at.notification),),
    "notifications.insert": (lambda at: at.bucket.notification(topic_name="topic").create(),),
    "notifications.list": (lambda at: list(at.bucket.list_notifications()),),
    "object_acl.list": (lambda at: at.blob.acl.reload(),),
    "objects.compose": (lambda at: at.new.compose([at.blob], **at.is_new),),
    "objects.copy": (lambda at: at.bucket.copy_blob(at.blob, at.bucket, "new", **at.is_new),),
    "objects.delete": (lambda at: at.blob.delete(**at.when(if_generation_match=at.numbers[0])),),
    "objects.get": (lambda at: at.bucket.get_blob("large"), _download, _download_a_range),
    "objects.insert": (
        lambda at: at.new.upload_from_string(b"short", **at.is_new),
        lambda at: at.new.create_resumable_upload_session(**at.is_new),
    ),
    "objects.list": (lambda at: list(at.bucket.list_blobs()),),
    "objects.patch": (_patch, lambda at: at.blob.make_public(**at.when(if_metageneration_match=at.numbers[1]))),
    "objects.rewrite": (lambda at: at.new.rewrite(at.blob, **at.is_new),),
    "objects.update": (lambda at: _patch(at, "update"),),
    "serviceaccount.get": (lambda at: at.client.get_service_account_email(),),
}


def calls_of(number: int, method: str) -> tuple[Callable[[Place], Any], ...]:
    """Returns the calls of a method in a scenario: in the last two, only uploads in parts and downloads."""
    return {7: (_upload_in_parts,), 8: (_download, _download_a_range)}.get(number) or CALLS[method]
