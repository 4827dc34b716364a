"""The examples of docs/fake-gcs.md do what they say: a fault that is ordered is met, and S3 is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


@pytest.fixture
def page(repository: Path) -> str:
    return (repository / "docs" / "fake-gcs.md").read_text()


def test_a_test_has_an_s3(page: str, pytester: pytest.Pytester) -> None:
    pytest.importorskip("boto3", reason="the extra s3 is not installed")
    _, example = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    pytester.makepyfile(test_on_s3=example)
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_a_test_meets_the_fault_that_it_orders(page: str, pytester: pytest.Pytester) -> None:
    pytest.importorskip("google.cloud.storage", reason="the extra google is not installed")
    example, _ = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    save = (
        "from google.cloud import storage\n\n\ndef save(folder):\n"
        "    bucket, _, name = folder.removeprefix('gs://').partition('/')\n"
        "    storage.Client().bucket(bucket).blob(f'{name}/weights').upload_from_string(b'1')\n\n\n"
    )
    pytester.makepyfile(test_on_gcs=save + example)
    pytester.runpytest_subprocess().assert_outcomes(passed=1)
