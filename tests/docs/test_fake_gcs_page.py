"""The examples of docs/fake-gcs.md do what they say: injected faults occur, and S3 is available."""

from __future__ import annotations

import pytest
from page_blocks import blocks


def test_a_test_has_an_s3(page: str, pytester: pytest.Pytester) -> None:
    pytest.importorskip("boto3", reason="the extra s3 is not installed")
    _, example = blocks(page, "python")
    pytester.makepyfile(test_on_s3=example)
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_a_test_meets_the_fault_that_it_orders(page: str, pytester: pytest.Pytester) -> None:
    pytest.importorskip("google.cloud.storage", reason="the extra google is not installed")
    example, _ = blocks(page, "python")
    save = (
        "from google.cloud import storage\n\n\ndef save(folder):\n"
        "    bucket, _, name = folder.removeprefix('gs://').partition('/')\n"
        "    storage.Client().bucket(bucket).blob(f'{name}/weights').upload_from_string(b'1')\n\n\n"
    )
    pytester.makepyfile(test_on_gcs=save + example)
    pytester.runpytest_subprocess().assert_outcomes(passed=1)
