"""Access control lists, notification configurations, HMAC keys and locks of retention policies, by Google's client."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("httptools", reason="the extra google is not installed")
pytest.importorskip("google.cloud.storage", reason="google-cloud-storage is not installed")

from serving_storage import client_of

from t5x_harness.google.session import EmulatedCloud


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with EmulatedCloud(tmp_path_factory.mktemp("root")) as session:
        yield client_of(session)


@pytest.fixture
def bucket(client: Any) -> Any:
    return client.create_bucket(f"bucket-{time.time_ns()}")


def test_access_control_lists_of_buckets_and_objects(bucket: Any) -> None:
    blob = bucket.blob("a")
    blob.upload_from_string(b"x")
    project = {"project-owners-100000000000", "project-editors-100000000000", "project-viewers-100000000000"}
    for acl in (bucket.acl, bucket.default_object_acl, blob.acl):
        acl.reload()
        assert {entry["entity"] for entry in acl} == project
        acl.user("someone@example.com").grant_write()
        acl.save()
        acl.reload()
        assert {entry["entity"]: entry["role"] for entry in acl}["user-someone@example.com"] == "WRITER"
    blob.make_public()
    blob.reload(projection="full")
    assert blob.metageneration == 3
    assert {"allUsers", "user-someone@example.com"} < {entry["entity"] for entry in blob.acl}
    blob.upload_from_string(b"another generation")
    blob.acl.reload()
    assert {entry["entity"] for entry in blob.acl} == project


def test_single_entries(client: Any, bucket: Any) -> None:
    path = f"{bucket.path}/acl"
    ask = client._connection.api_request
    made = ask(method="POST", path=path, data={"entity": "allUsers", "role": "READER"})
    assert (made["kind"], made["bucket"], made["role"]) == ("storage#bucketAccessControl", bucket.name, "READER")
    assert ask(method="PATCH", path=f"{path}/allUsers", data={"role": "OWNER"})["role"] == "OWNER"
    assert ask(method="GET", path=f"{path}/allUsers") == {**made, "role": "OWNER"}
    ask(method="DELETE", path=f"{path}/allUsers")
    assert "allUsers" not in [entry["entity"] for entry in ask(method="GET", path=path)["items"]]


def test_a_bucket_with_uniform_access_has_no_lists(bucket: Any) -> None:
    from google.api_core.exceptions import BadRequest

    assert not bucket.iam_configuration.uniform_bucket_level_access_enabled
    bucket.iam_configuration.uniform_bucket_level_access_enabled = True
    bucket.patch()
    for call in (bucket.acl.reload, lambda: bucket.acl.save_predefined("publicRead")):
        with pytest.raises(BadRequest, match="uniform bucket-level access"):
            call()


def test_notification_configurations(client: Any, bucket: Any) -> None:
    made = bucket.notification(topic_name="topic", event_types=["OBJECT_FINALIZE"], payload_format="NONE")
    made.create()
    (found,) = bucket.list_notifications()
    assert (found.topic_name, found.event_types, found.payload_format) == ("topic", ["OBJECT_FINALIZE"], "NONE")
    assert bucket.get_notification(made.notification_id).etag == found.etag
    bucket.reload()
    assert bucket.metageneration == 1
    bucket.delete()
    again = client.create_bucket(bucket.name)
    assert list(again.list_notifications()) == []


def test_hmac_keys(client: Any) -> None:
    from google.api_core.exceptions import BadRequest

    key, secret = client.create_hmac_key("someone@example.com")
    assert len(secret) == 40
    assert (key.service_account_email, key.state, len(key.access_id)) == ("someone@example.com", "ACTIVE", 61)
    assert [it.access_id for it in client.list_hmac_keys(service_account_email="other@example.com")] == []
    with pytest.raises(BadRequest, match="set the key to INACTIVE first"):
        client._delete_resource(key.path)
    etag = key.etag
    key.state = "INACTIVE"
    key.update()
    assert key.etag != etag
    key.delete()
    assert not key.exists()


def test_a_retention_policy_is_locked_and_permissions_are_all_held(client: Any, bucket: Any) -> None:
    bucket.retention_period = 60
    bucket.patch()
    bucket.lock_retention_policy()
    bucket.reload()
    assert (bucket.retention_policy_locked, bucket.retention_period) == (True, 60)
    asked = ["storage.buckets.get", "storage.objects.create"]
    assert bucket.test_iam_permissions(asked) == asked
    assert client.get_service_account_email().endswith("@gs-project-accounts.iam.gserviceaccount.com")
