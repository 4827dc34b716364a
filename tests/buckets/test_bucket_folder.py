"""The files that jobs write to buckets and read from them, and the errors if Cloud Storage refuses."""

import pytest

from t5x_harness.buckets.folders import Folder, StagedFile, StorageError
from t5x_harness.google.gcs import FakeGcs
from t5x_harness.vertex.errors import VertexError
from t5x_harness.vertex.target import EMULATED, VertexTarget
from t5x_harness.vertex.tracking import upload_events

pytest.importorskip("google.cloud.storage")

FILES = (StagedFile("gin/run.gin", b"X = 1\n"), StagedFile("python/my tasks.py", b""))


@pytest.fixture
def folder(fake_gcs: FakeGcs) -> Folder:
    made = Folder("gs://my-bucket/stage/", "p")
    made.create_bucket("us-central1")
    return made


def test_files_are_put_once_and_read_back(folder: Folder) -> None:
    assert folder.address == "gs://my-bucket/stage"
    assert folder.put(FILES) == 2
    assert folder.put(FILES) == 0
    assert folder.read("gin/run.gin") == b"X = 1\n"
    assert folder.read("gin/other.gin") is None
    assert sorted(folder.names()) == [("gin/run.gin", 6), ("python/my tasks.py", 0)]
    assert list(folder.names("gin/")) == [("gin/run.gin", 6)]


def test_a_bucket_may_be_made_twice(folder: Folder) -> None:
    folder.create_bucket("us-central1")
    folder.require_bucket()


@pytest.mark.usefixtures("fake_gcs")
def test_a_bucket_of_another_region_is_said(folder: Folder) -> None:
    assert folder.misplaced("us-central1") == ""
    assert folder.misplaced("us-west4") == (
        "gs://my-bucket is in us-central1 and the job in us-west4: what it reads and writes is slower, and paid for as "
        "traffic between regions"
    )
    everywhere = Folder("gs://everywhere/x", "p")
    assert everywhere.misplaced("us-west4") == "", "nobody can look at a bucket that is not there"
    everywhere.create_bucket("US")
    assert everywhere.misplaced("us-west4") == ""


@pytest.mark.parametrize("address", ["gs://", "gs:///x", "/gcs/", "/a/folder/of/this/machine"])
def test_an_address_without_a_bucket_is_no_folder_of_one(address: str) -> None:
    with pytest.raises(StorageError) as caught:
        Folder(address, "p")
    assert str(caught.value) == f"{address!r} names no bucket: give a folder of one, as gs://BUCKET/FOLDER"


@pytest.mark.parametrize("address", ["gs://", "gs:///x", "/gcs/"])
def test_no_events_are_uploaded_from_an_address_without_a_bucket(address: str) -> None:
    with pytest.raises(VertexError) as caught:
        upload_events(address, "my-run", "123", VertexTarget(**EMULATED))
    assert str(caught.value) == (
        f"the event files of my-run cannot be uploaded: {address!r} names no bucket: give a folder of one, as "
        "gs://BUCKET/FOLDER"
    )


@pytest.mark.usefixtures("fake_gcs")
def test_a_bucket_that_is_not_there_is_told_as_that() -> None:
    folder = Folder("gs://no-bucket/x", "p")
    for ask in (lambda: folder.put(FILES), lambda: folder.read("y"), lambda: list(folder.names())):
        with pytest.raises(StorageError) as caught:
            ask()
        assert str(caught.value).startswith("gs://no-bucket")
        assert ": 404, " in str(caught.value)
        assert str(caught.value).endswith("It can be made by gcloud storage buckets create gs://no-bucket")


def test_a_refusal_is_told_with_the_role_that_is_missing(folder: Folder, fake_gcs: FakeGcs) -> None:
    fake_gcs.fail(403, on="upload", times=None)
    with pytest.raises(StorageError) as caught:
        folder.put(FILES[:1])
    assert str(caught.value).startswith("gs://my-bucket/stage/gin/run.gin: 403, ")
    assert "This account needs roles/storage.objectAdmin on gs://my-bucket" in str(caught.value)


def test_a_service_that_is_disturbed_is_asked_again(folder: Folder, fake_gcs: FakeGcs) -> None:
    fake_gcs.fail(503, on="upload", times=1)
    assert folder.put(FILES[:1]) == 1
