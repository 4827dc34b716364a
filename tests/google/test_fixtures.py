"""The fixtures give each test empty buckets, and fail it for faults that were not hit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("httptools", reason="the extra google is not installed")

from t5x_harness.google.gcs import FakeGcs


def test_each_test_begins_clean_and_every_fault_has_to_be_met(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import urllib.request

        def ask(fake_gcs, path):
            direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            direct.open(fake_gcs.endpoint + path).close()

        def test_unmet(fake_gcs, gcs_tree):
            gcs_tree({"a/b": "text"})
            fake_gcs.fail(503, on="list")

        def test_clean(fake_gcs):
            assert fake_gcs.buckets() == []
            assert fake_gcs.requests == []
            fake_gcs.reset(optional=True)

        def test_met_too_rarely(fake_gcs, gcs_tree):
            bucket = gcs_tree({"a": "text"}).removeprefix("gs://")
            fake_gcs.stall(0, on="list", times=3)
            fake_gcs.stall(0, on="download", match="a", times=None)
            fake_gcs.truncate(bytes=4, on="download")  # cuts nothing: there are no more bytes
            ask(fake_gcs, f"/storage/v1/b/{bucket}/o")
            ask(fake_gcs, f"/storage/v1/b/{bucket}/o/a?alt=media")

        def test_met_as_often_as_they_are_for(fake_gcs, gcs_bucket):
            fake_gcs.stall(0, on="list", times=2)
            fake_gcs.stall(0, on="bucket.get", times=None)
            fake_gcs.reset(on="list", after=1, optional=True)
            for path in ("/o", "", "", "/o"):
                ask(fake_gcs, f"/storage/v1/b/{gcs_bucket}{path}")
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=4, errors=2)
    result.stdout.fnmatch_lines(
        [
            "gcs.fail(503, on='list') was not hit (requests: none)",
            "optional=True allows that",
            "gcs.stall(0, on='list', times=3) was hit 1 of 3 times (requests: 1 download, 1 list)",
            "gcs.truncate(bytes=4, on='download') was not hit (requests: 1 download, 1 list)",
            "optional=True allows that",
        ]
    )


def test_a_folder_and_its_clients(fake_gcs: FakeGcs, gcs_tree: Callable[[Path], str], tmp_path: Path) -> None:
    storage = pytest.importorskip("google.cloud.storage")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file").write_bytes(b"\x00 body")
    url = gcs_tree(tmp_path)
    blob = storage.Client().bucket(url.removeprefix("gs://")).blob("sub/file")
    assert blob.download_as_bytes() == b"\x00 body"
    downloads = [r for r in fake_gcs.requests if r.operation == "download"]  # some versions also ask for the bucket
    assert [(r.object, r.status, r.sent) for r in downloads] == [("sub/file", 200, 6)]


def test_an_early_import_of_gcsfs_is_told(pytester: pytest.Pytester) -> None:
    package = pytester.mkpydir("gcsfs")
    package.joinpath("__init__.py").write_text("from gcsfs.extended_gcsfs import GCSFileSystem")
    package.joinpath("extended_gcsfs.py").write_text("class GCSFileSystem: pass")
    pytester.makepyfile("import gcsfs\n\ndef test(fake_gcs):\n    pass")
    pytester.syspathinsert()
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*set GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT=false for pytest, or import gcsfs in tests*"])
