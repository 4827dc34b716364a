"""google-cloud-storage in this process, with all features that trainers' scripts use."""

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.cloud.storage", reason="google-cloud-storage is not installed")

from google.api_core import exceptions
from google.cloud import storage
from google.cloud.storage import transfer_manager
from google.cloud.storage.retry import DEFAULT_RETRY

BODY = bytes(range(256)) * 40_000  # more than ten megabytes


@pytest.fixture
def client(fake_gcs: Any) -> storage.Client:
    return storage.Client()


@pytest.fixture
def bucket(client: storage.Client, gcs_bucket: str) -> storage.Bucket:
    return client.bucket(gcs_bucket)


def test_uploads_of_every_kind(bucket: Any, tmp_path: Path, read_back: Callable[..., None]) -> None:
    (tmp_path / "file").write_bytes(BODY)
    bucket.blob("string").upload_from_string("text ü", content_type="text/plain")
    bucket.blob("file").upload_from_filename(tmp_path / "file", checksum="md5")
    bucket.blob("crc32c").upload_from_filename(tmp_path / "file", checksum="crc32c")
    bucket.blob("chunked", chunk_size=1 << 20).upload_from_filename(tmp_path / "file")
    with bucket.blob("opened").open("wb", chunk_size=1 << 20) as file:
        for start in range(0, len(BODY), 700_000):
            file.write(BODY[start : start + 700_000])
    with bucket.blob("lines").open("w") as file:
        file.write("one\ntwo\n")
    bucket.blob("empty").upload_from_string(b"")
    large = dict.fromkeys(("file", "crc32c", "chunked", "opened"), BODY)
    small = {"string": "text ü".encode(), "lines": b"one\ntwo\n", "empty": b""}
    read_back(bucket.name, {**large, **small}, by="google-cloud-storage")
    assert bucket.blob("opened").open("rb").read() == BODY
    assert bucket.blob("file").download_as_bytes(start=1000, end=1999) == BODY[1000:2000]
    bucket.blob("file", chunk_size=1 << 20).download_to_filename(tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == BODY


def test_transfer_manager(bucket: Any, tmp_path: Path, read_back: Callable[..., None]) -> None:
    local = tmp_path / "local"
    local.write_bytes(BODY)
    threads = {"worker_type": transfer_manager.THREAD, "max_workers": 4}
    for checksum in ("crc32c", "md5"):  # multipart uploads of the XML API
        transfer_manager.upload_chunks_concurrently(
            str(local), bucket.blob(f"parts/{checksum}"), chunk_size=5 << 20, checksum=checksum, **threads
        )
    folder = tmp_path / "many"
    folder.mkdir()
    names = [f"{index}.bin" for index in range(12)]
    for index, name in enumerate(names):
        (folder / name).write_bytes(BODY[: index * 1000])
    results = transfer_manager.upload_many_from_filenames(
        bucket, names, source_directory=str(folder), blob_name_prefix="many/", **threads
    )
    assert results == [None] * 12
    written = {f"many/{name}": BODY[: index * 1000] for index, name in enumerate(names)}
    read_back(bucket.name, {"parts/crc32c": BODY, "parts/md5": BODY, **written}, by="google-cloud-storage")
    transfer_manager.download_chunks_concurrently(
        bucket.blob("parts/md5"), str(tmp_path / "back"), chunk_size=3 << 20, **threads
    )
    assert (tmp_path / "back").read_bytes() == BODY
    back = tmp_path / "back-many"
    results = transfer_manager.download_many_to_path(
        bucket, names, destination_directory=str(back), blob_name_prefix="many/", create_directories=True, **threads
    )
    assert results == [None] * 12
    assert all((back / name).read_bytes() == (folder / name).read_bytes() for name in names)


def test_compose_copy_rewrite_and_move(client: Any, bucket: Any, read_back: Callable[..., None]) -> None:
    for name in ("one", "two"):
        bucket.blob(name).upload_from_string(name)
    composed = bucket.blob("composed")
    composed.compose([bucket.blob("one"), bucket.blob("two")], if_generation_match=0)
    assert (composed.component_count, composed.md5_hash) == (2, None)
    bucket.copy_blob(bucket.blob("one"), bucket, "copied")
    bucket.rename_blob(bucket.blob("two"), "renamed")
    bucket.blob("large").upload_from_string(BODY)
    elsewhere = client.create_bucket(f"{bucket.name}-eu", location="EU")
    target, token, told = elsewhere.blob("large"), None, []
    while True:
        token, done, size = target.rewrite(
            bucket.blob("large"), token=token, if_generation_match=None, timeout=30, retry=DEFAULT_RETRY
        )
        told.append((done, size))
        if token is None:
            break
    assert told == [(len(BODY), len(BODY))]
    target.update_storage_class("NEARLINE")
    read_back(bucket.name, {"composed": b"onetwo", "copied": b"one", "renamed": b"two"}, by="google-cloud-storage")
    read_back(elsewhere.name, {"large": BODY}, by="google-cloud-storage")
    assert not bucket.blob("two").exists()


def test_a_move_is_one_step(client: Any, bucket: Any, fake_gcs: Any, read_back: Callable[..., None]) -> None:
    source = bucket.blob("folder/one ü")
    source.metadata, source.content_language = {"k": "v"}, "de"
    source.upload_from_string("one", content_type="text/x")
    bucket.blob("two").upload_from_string("two")
    before = bucket.get_blob(source.name)
    moved = bucket.move_blob(before, "there/one ü", if_generation_match=0, if_source_generation_match=before.generation)
    assert (moved.name, moved.metageneration, moved.md5_hash) == ("there/one ü", 1, before.md5_hash)
    assert (moved.content_type, moved.content_language, moved.metadata) == ("text/x", "de", {"k": "v"})
    assert moved.generation > before.generation
    assert moved.time_created > before.time_created
    assert [blob.name for blob in client.list_blobs(bucket.name)] == ["there/one ü", "two"]
    for wrong in (
        {"if_generation_match": 0},
        {"if_source_generation_match": before.generation},
        {"if_source_metageneration_not_match": 1},
    ):
        with pytest.raises(exceptions.PreconditionFailed):
            bucket.move_blob(moved, "two", **wrong)
    with pytest.raises(exceptions.NotFound, match="No such object"):
        bucket.move_blob(before, "three")
    read_back(bucket.name, {"there/one ü": b"one", "two": b"two"}, by="google-cloud-storage")
    fake_gcs.fail(503, on="move", match="two")
    bucket.move_blob(moved, "two", if_generation_match=bucket.get_blob("two").generation)  # asked again
    read_back(bucket.name, {"two": b"one"}, by="google-cloud-storage")
    assert [request.object for request in fake_gcs.requests if request.operation == "move"][-2:] == ["two", "two"]
    fake_gcs.lose(on="move")
    with pytest.raises(exceptions.NotFound):  # the client's own first attempt moved the object, as it would with Google
        bucket.move_blob(bucket.blob("two"), "three", if_generation_match=0)
    read_back(bucket.name, {"three": b"one"}, by="google-cloud-storage")


def test_a_batch(client: Any, bucket: Any) -> None:
    for index in range(5):
        bucket.blob(f"b/{index} ü").upload_from_string(str(index))
    with client.batch():
        for index in range(3):
            bucket.delete_blob(f"b/{index} ü")
        bucket.blob("b/4 ü").metadata = None
    assert [blob.name for blob in client.list_blobs(bucket.name)] == ["b/3 ü", "b/4 ü"]
    with client.batch(raise_exception=False) as batch:
        bucket.delete_blob("none")
        bucket.delete_blob("b/3 ü")
    assert [response.status_code for response in batch._responses] == [404, 204]
    assert [blob.name for blob in client.list_blobs(bucket.name)] == ["b/4 ü"]
    bucket.delete_blobs([bucket.blob("b/4 ü")])
    with pytest.raises(exceptions.NotFound, match="No such object"), client.batch():
        bucket.delete_blob("b/4 ü")


def test_a_buckets_policy_is_kept_and_told(client: Any, bucket: Any) -> None:
    policy = bucket.get_iam_policy(requested_policy_version=3)
    assert "roles/storage.legacyBucketOwner" in {binding["role"] for binding in policy.bindings}
    policy.bindings.append({"role": "roles/storage.objectViewer", "members": {"user:a@example.com"}})
    stale = bucket.get_iam_policy()
    bucket.set_iam_policy(policy)
    bucket.storage_class = "NEARLINE"
    bucket.update()
    found = client.get_bucket(bucket.name)
    assert found.get_iam_policy()["roles/storage.objectViewer"] == {"user:a@example.com"}
    assert not any("olicy" in name for name in found._properties)
    with pytest.raises(exceptions.PreconditionFailed, match="The policy was changed since it was read"):
        bucket.set_iam_policy(stale)


def test_fields_conditions_and_listings(client: Any, bucket: Any) -> None:
    blob = bucket.blob("folder/a")
    blob.metadata = {"k": "v"}
    blob.cache_control, blob.content_language = "no-store", "de"
    blob.custom_time = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    blob.upload_from_string("a", content_type="text/x", if_generation_match=0)
    with pytest.raises(exceptions.PreconditionFailed):
        blob.upload_from_string("b", if_generation_match=0)
    found = bucket.get_blob("folder/a")
    assert (found.metadata, found.cache_control, found.content_type) == ({"k": "v"}, "no-store", "text/x")
    assert (found.custom_time, found.size, found.metageneration) == (blob.custom_time, 1, 1)
    found.metadata = {"k": "w"}
    found.patch(if_metageneration_match=1)
    with pytest.raises(exceptions.PreconditionFailed):
        found.patch(if_metageneration_match=1)
    assert bucket.blob("folder/a").download_as_bytes(if_etag_match=bucket.get_blob("folder/a").etag) == b"a"
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("folder/a").download_as_bytes(if_etag_match="other")
    for name in ("folder/b.txt", "top", "ü"):
        bucket.blob(name).upload_from_string("")
    page = client.list_blobs(bucket.name, delimiter="/", page_size=1)
    assert ([it.name for it in page], page.prefixes) == (["top", "ü"], {"folder/"})
    assert [it.name for it in client.list_blobs(bucket.name, match_glob="**/*.txt")] == ["folder/b.txt"]
    assert [it.name for it in client.list_blobs(bucket.name, start_offset="folder/b", end_offset="u")] == [
        "folder/b.txt",
        "top",
    ]
    assert bucket.name in [it.name for it in client.list_buckets()]
    with pytest.raises(exceptions.NotFound, match="The specified bucket does not exist"):
        client.get_bucket("none-such-bucket")
    with pytest.raises(exceptions.Conflict, match="you already own it"):
        client.create_bucket(bucket.name)
    with pytest.raises(exceptions.Conflict, match="not empty"):
        bucket.delete()
    bucket.delete(force=True)
    assert not bucket.exists()
