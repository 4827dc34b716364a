"""The answers of the JSON API have the fields and types of Google's own description, each method by the real client.

The tests of this folder compare the answers of all other requests, too.
"""

from collections import Counter
from typing import Any

import pytest

pytest.importorskip("httptools", reason="the extra google is not installed")
pytest.importorskip("google.cloud.storage", reason="google-cloud-storage is not installed")

from discovery import Description, faults_of_storage
from serving_storage import client_of

from t5x_harness.google.session import EmulatedCloud

CALLED = """
bucketAccessControls.list buckets.delete buckets.get buckets.getIamPolicy buckets.insert buckets.list
buckets.lockRetentionPolicy buckets.patch buckets.setIamPolicy buckets.testIamPermissions buckets.update
defaultObjectAccessControls.list notifications.delete notifications.get notifications.insert notifications.list
objectAccessControls.list objects.compose objects.copy objects.delete objects.get objects.insert objects.list
objects.move objects.patch objects.rewrite objects.update projects.hmacKeys.create projects.hmacKeys.delete
projects.hmacKeys.get projects.hmacKeys.list projects.hmacKeys.update projects.serviceAccount.get
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with EmulatedCloud(tmp_path_factory.mktemp("root")) as session:
        yield client_of(session)


def test_each_method_that_the_client_has(client: Any, answers_of_clients: Counter[str]) -> None:
    bucket, other = client.create_bucket("described"), client.create_bucket("described-too")
    bucket.labels, bucket.cors = {"a": "b"}, [{"origin": ["*"], "method": ["GET"], "maxAgeSeconds": 3}]
    bucket.add_lifecycle_delete_rule(age=3)
    bucket.patch()
    bucket.update()
    bucket.reload(projection="full")
    blob = bucket.blob("folder/small")
    blob.metadata = {"key": "value"}
    blob.upload_from_string("text")
    blob.reload(projection="full")
    blob.content_language = "en"
    blob.patch()
    blob.update()
    in_parts = bucket.blob("in parts", chunk_size=256 * 1024)
    in_parts.upload_from_string(b"x" * 300 * 1024)
    assert {each.name for each in client.list_blobs(bucket)} == {"folder/small", "in parts"}
    list(client.list_blobs(bucket, delimiter="/"))
    assert len(list(client.list_buckets())) == 2
    bucket.copy_blob(blob, other, "copied")
    other.blob("rewritten").rewrite(blob)
    composed = bucket.blob("composed")
    composed.compose([blob, in_parts])
    bucket.move_blob(composed, "moved").delete()
    bucket.set_iam_policy(bucket.get_iam_policy(requested_policy_version=3))
    assert bucket.test_iam_permissions(["storage.objects.get"]) == ["storage.objects.get"]
    for acl in (bucket.acl, bucket.default_object_acl, blob.acl):
        acl.reload()
    bucket.notification("my-topic").create()
    (notification,) = bucket.list_notifications()
    bucket.get_notification(notification.notification_id).delete()
    key, _ = client.create_hmac_key("someone@example.com")
    assert [each.access_id for each in client.list_hmac_keys()] == [key.access_id]
    key.reload()
    key.state = "INACTIVE"
    key.update()
    key.delete()
    assert client.get_service_account_email()
    other.retention_period = 1
    other.patch()
    other.lock_retention_policy()
    bucket.delete(force=True)
    assert set(answers_of_clients) == {f"storage.{name}" for name in CALLED.split()}


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (b'{"kind": "storage#bucket", "colour": "red"}', "storage.buckets.get.colour: there is no such field"),
        (b'{"metageneration": 1}', "storage.buckets.get.metageneration: 1 is no string"),
        (b'{"metageneration": "one"}', "storage.buckets.get.metageneration: 'one' is no int64"),
        (b'{"timeCreated": "today"}', "storage.buckets.get.timeCreated: 'today' is no date-time"),
        (b'{"cors": {}}', "storage.buckets.get.cors: {} is no array"),
        (b'{"versioning": {"enabled": 1}}', "storage.buckets.get.versioning.enabled: 1 is no boolean"),
    ],
)
def test_a_fault_is_found(answer: bytes, fault: str) -> None:
    assert faults_of_storage("GET", "/storage/v1/b/bucket", 200, "application/json", answer) == [fault]


def test_every_path_is_that_of_one_method() -> None:
    storage = Description("storage.v1")
    for name, method in storage.methods.items():
        assert storage.method_of(method["verb"], method["path"].replace("{", "").replace("}", "")) == name
