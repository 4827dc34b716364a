"""Unmodified S3 clients find the test's own store."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("moto", reason="the extra s3 is not installed")

from t5x_harness.fixtures.storage_s3 import FakeS3, S3Error, S3Server


def boto_client() -> Any:
    return pytest.importorskip("boto3").client("s3")


def test_boto_reads_and_writes(fake_s3: FakeS3) -> None:
    fake_s3.bucket("my-bucket", {"data/a.txt": "a", "data/b.bin": b"\x00b"})
    client = boto_client()
    client.put_object(Bucket="my-bucket", Key="out", Body=b"out")
    listed = client.list_objects_v2(Bucket="my-bucket")["Contents"]
    assert [entry["Key"] for entry in listed] == ["data/a.txt", "data/b.bin", "out"]
    assert client.get_object(Bucket="my-bucket", Key="data/b.bin")["Body"].read() == b"\x00b"


def test_s3fs_and_boto_see_the_same(fake_s3: FakeS3) -> None:
    s3fs = pytest.importorskip("s3fs")
    bucket = fake_s3.bucket()
    files = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)
    with files.open(f"{bucket}/folder/file", "wb") as file:
        file.write(b"from s3fs")
    assert boto_client().get_object(Bucket=bucket, Key="folder/file")["Body"].read() == b"from s3fs"
    assert files.ls(f"s3://{bucket}/folder") == [f"{bucket}/folder/file"]


def test_tensorstore_keeps_arrays(fake_s3: FakeS3) -> None:
    tensorstore = pytest.importorskip("tensorstore")
    bucket = fake_s3.bucket("arrays")
    place = {"driver": "s3", "bucket": bucket, "path": "x/", "endpoint": fake_s3.endpoint, "aws_region": fake_s3.region}
    spec = {"driver": "zarr", "kvstore": place}
    array = tensorstore.open(spec, create=True, dtype=tensorstore.int32, shape=[4], chunk_layout=None).result()
    array[...] = [1, 2, 3, 4]
    assert tensorstore.open(spec).result()[...].read().result().tolist() == [1, 2, 3, 4]
    listed = boto_client().list_objects_v2(Bucket=bucket)["Contents"]
    assert [entry["Key"] for entry in listed] == ["x/.zarray", "x/0"]


def test_programs_that_a_test_starts_find_it(fake_s3: FakeS3) -> None:
    pytest.importorskip("boto3")
    fake_s3.bucket("my-bucket", {"k": "v"})
    code = "import boto3; print(boto3.client('s3').get_object(Bucket='my-bucket', Key='k')['Body'].read().decode())"
    done = subprocess.run([sys.executable, "-P", "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "v\n"


@pytest.mark.parametrize("_turn", [1, 2])
def test_each_test_begins_without_buckets(fake_s3: FakeS3, _turn: int) -> None:
    assert boto_client().list_buckets()["Buckets"] == []
    fake_s3.bucket("my-bucket")


def test_nothing_of_a_users_settings_counts(fake_s3: FakeS3) -> None:
    assert {name: os.environ.get(name) for name in fake_s3.environment} == dict(fake_s3.environment)
    assert os.environ["AWS_ENDPOINT_URL"].startswith("http://127.0.0.1:")
    assert "AWS_PROFILE" not in os.environ


def test_a_bucket_that_cannot_be_made_is_told(fake_s3: FakeS3) -> None:
    with pytest.raises(S3Error, match=r"^PUT /ab: 400 InvalidBucketName: The specified bucket is not valid"):
        fake_s3.bucket("ab")


def test_variables_are_gone_after_the_test_and_tests_share_a_server(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import os

        servers = set()

        def test_one(fake_s3):
            servers.add(fake_s3.endpoint)
            assert os.environ["AWS_ENDPOINT_URL"] == fake_s3.endpoint

        def test_between():
            assert "AWS_ENDPOINT_URL" not in os.environ

        def test_two(fake_s3):
            assert servers == {fake_s3.endpoint}
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=3)


def test_without_moto_the_extra_is_named(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("import sys\nsys.modules['moto'] = None")
    pytester.makepyfile("def test_it(fake_s3):\n    pass")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["fake_s3: S3 is emulated by moto, which is not installed: python -m pip install 't5x-harness?s3?'"]
    )
    result.stdout.no_fnmatch_line("*Traceback*")


def test_a_server_that_does_not_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "werkzeug.py").write_text("raise ImportError('no werkzeug today')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(S3Error, match=r"^moto's server did not start: .*; python -m pip install 't5x-harness\[s3\]'$"):
        S3Server()


def test_a_server_ends_with_its_parent() -> None:
    code = """
import json, os, signal
from t5x_harness.fixtures.storage_s3 import S3Server
server = S3Server()
print(json.dumps(server.pid), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL
    pid = json.loads(done.stdout)
    deadline = time.monotonic() + 20
    while (state := Path(f"/proc/{pid}/stat")).exists() and state.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_close_ends_it_and_may_be_called_again() -> None:
    with S3Server() as server:
        assert server.endpoint == server.environment["AWS_ENDPOINT_URL"]
    server.close()
    with pytest.raises(ConnectionRefusedError):
        server.clear()
