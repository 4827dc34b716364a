"""The fixtures give each test a clean namespace, and fail it for faults that nobody met."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="the extra google is not installed")

from t5x_harness.google.gcs import FakeGcs


def test_clean_and_strict(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_unmet(fake_gcs, gcs_tree):
            gcs_tree({"a/b": "text"})
            fake_gcs.fail(503, on="list")

        def test_clean(fake_gcs):
            assert fake_gcs._items("/storage/v1/b?project=p") == []
            assert fake_gcs.requests == []
            fake_gcs.reset(optional=True)
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*no request met gcs.fail(503, on='list'); optional=True allows that*"])


def test_a_folder_and_its_clients(fake_gcs: FakeGcs, gcs_tree: Callable[[Path], str], tmp_path: Path) -> None:
    storage = pytest.importorskip("google.cloud.storage")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file").write_bytes(b"\x00 body")
    url = gcs_tree(tmp_path)
    blob = storage.Client().bucket(url.removeprefix("gs://")).blob("sub/file")
    assert blob.download_as_bytes() == b"\x00 body"
    downloads = [r for r in fake_gcs.requests if r.operation == "download"]  # some versions ask for the bucket, too
    assert [(r.object, r.status, r.sent) for r in downloads] == [("sub/file", 200, 6)]
