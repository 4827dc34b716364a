"""Faults with unmodified clients: they try again, and their writes are complete; or they give up with an error."""

import io
from collections.abc import Callable
from typing import Any

import pytest

BODY = bytes(range(256)) * 6000  # about 1.5 MB


@pytest.fixture(autouse=True)
def _body(tensors: Any) -> None:
    tensors("body = lambda: bytes(range(256)) * 6000")


def met(gcs: Any, operation: str) -> list[str]:
    """Returns the faults that requests for an operation hit, in order."""
    return [it.fault for it in gcs.requests if it.operation == operation and it.fault]


WRITE = {
    "tensorflow": 'with tf.io.gfile.GFile(f"gs://{bucket}/x", "wb") as file:\n    file.write(body())',
    "tensorstore": 'ts.KvStore.open(f"gs://{bucket}/").result().write("x", body()).result()',
}
READ = {
    "tensorflow": 'result = tf.io.gfile.GFile(f"gs://{bucket}/x", "rb").read() == body()',
    "tensorstore": 'result = bytes(ts.KvStore.open(f"gs://{bucket}/").result().read("x").result().value) == body()',
}


@pytest.mark.parametrize(
    ("client", "fault", "arguments"),
    [
        ("tensorflow", "fail", {"status": 503, "times": 2}),
        ("tensorflow", "fail", {"status": 429}),
        ("tensorflow", "reset", {"bytes": 700_000}),
        ("tensorflow", "reset", {}),
        ("tensorflow", "stall", {"seconds": 0.3}),
        ("tensorstore", "fail", {"status": 503, "times": 3}),
        ("tensorstore", "fail", {"status": 429}),
        ("tensorstore", "reset", {"bytes": 500_000}),
        ("tensorstore", "reset", {"times": 2}),
        ("tensorstore", "lose", {}),
    ],
    ids=str,
)
def test_writing_goes_on(
    tensors: Any, fake_gcs: Any, gcs_bucket: str, read_back: Any, client: str, fault: str, arguments: dict[str, Any]
) -> None:
    after = {"after": 1} if client == "tensorflow" else {}  # its first request only announces the upload
    getattr(fake_gcs, fault)(**arguments, on="upload", match="x", **after)
    tensors(WRITE[client], bucket=gcs_bucket)
    assert met(fake_gcs, "upload") == [fault] * arguments.get("times", 1)
    read_back(gcs_bucket, {"x": BODY}, by=client)


@pytest.mark.parametrize(
    ("client", "fault", "arguments"),
    [
        ("tensorflow", "fail", {"status": 503, "times": 2}),
        ("tensorflow", "reset", {}),
        ("tensorflow", "truncate", {"bytes": 100_000}),
        ("tensorflow", "stall", {"seconds": 0.3}),
        ("tensorflow", "slow", {"bytes_per_second": 4_000_000}),
        ("tensorstore", "fail", {"status": 503, "times": 3}),
        ("tensorstore", "reset", {}),
        ("tensorstore", "truncate", {"bytes": 100_000}),
        ("tensorstore", "truncate", {"bytes": 0}),
        ("tensorstore", "slow", {"bytes_per_second": 4_000_000}),
    ],
    ids=str,
)
def test_reading_goes_on(
    tensors: Any, fake_gcs: Any, gcs_bucket: str, client: str, fault: str, arguments: dict[str, Any]
) -> None:
    fake_gcs.put(gcs_bucket, {"x": BODY})
    getattr(fake_gcs, fault)(**arguments, on="download", match="x")
    assert tensors(READ[client], bucket=gcs_bucket)
    assert met(fake_gcs, "download") == [fault] * arguments.get("times", 1)


def test_tensorflow_gives_up_on_what_does_not_pass(tensors: Any, fake_gcs: Any, gcs_bucket: str) -> None:
    fake_gcs.put(gcs_bucket, {"x": BODY})
    fake_gcs.fail(403, times=None, match="x")
    told = tensors(
        """
        try:
            tf.io.gfile.GFile(f"gs://{bucket}/x", "rb").read()
        except tf.errors.PermissionDeniedError as error:
            result = "t5x-harness: gcs.fail(403" in str(error)
        """,
        bucket=gcs_bucket,
    )
    assert told is True


@pytest.mark.parametrize(
    ("fault", "arguments"),
    [("fail", {"status": 503, "times": 2}), ("fail", {"status": 429}), ("reset", {})],
    ids=str,
)
def test_gcsfs_goes_on(
    fake_gcs: Any, gcs_bucket: str, read_back: Callable[..., None], fault: str, arguments: dict[str, Any]
) -> None:
    import gcsfs

    files = gcsfs.GCSFileSystem(skip_instance_cache=True, use_listings_cache=False)
    getattr(fake_gcs, fault)(**arguments, on="upload", match="x")
    files.pipe_file(f"{gcs_bucket}/x", BODY)
    getattr(fake_gcs, fault)(**arguments, on="download", match="x")
    assert files.cat_file(f"{gcs_bucket}/x") == BODY
    read_back(gcs_bucket, {"x": BODY}, by="gcsfs")


@pytest.mark.parametrize(
    ("fault", "arguments"),
    [
        ("fail", {"status": 503, "times": 2}),
        ("fail", {"status": 429}),
        ("fail", {"status": 408}),
        ("reset", {"bytes": 300_000}),
        ("reset", {}),
        ("stall", {"seconds": 0.3}),
    ],
    ids=str,
)
def test_google_cloud_storage_goes_on(
    fake_gcs: Any, gcs_bucket: str, read_back: Callable[..., None], fault: str, arguments: dict[str, Any]
) -> None:
    from google.cloud import storage

    bucket = storage.Client().bucket(gcs_bucket)
    getattr(fake_gcs, fault)(**arguments, on="upload", match="x", after=1)  # not the request that begins the upload
    bucket.blob("x", chunk_size=1 << 19).upload_from_file(io.BytesIO(BODY), if_generation_match=0)
    read_back(gcs_bucket, {"x": BODY}, by="google-cloud-storage")
    if "bytes" not in arguments:
        getattr(fake_gcs, fault)(**arguments, on="download", match="x")
        assert bucket.blob("x").download_as_bytes() == BODY
        fake_gcs.truncate(bytes=1000, on="download")
        assert bucket.blob("x").download_as_bytes() == BODY


def test_an_answer_that_is_lost_looks_like_a_broken_condition(fake_gcs: Any, gcs_bucket: str) -> None:
    from google.api_core import exceptions
    from google.cloud import storage

    blob = storage.Client().bucket(gcs_bucket).blob("x")
    fake_gcs.lose(on="upload", match="x")
    with pytest.raises(exceptions.PreconditionFailed):  # the client's own first attempt created the object
        blob.upload_from_string(b"x", if_generation_match=0)
    assert blob.download_as_bytes() == b"x"
