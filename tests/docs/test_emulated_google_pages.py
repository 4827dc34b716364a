"""The examples of the pages on the emulated Google Cloud run, and do what the pages say."""

import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from page_blocks import blocks, python

from t5x_harness.google.environment import google_environment
from t5x_harness.google.server.settings import Endpoints


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_google_the_program_runs(pages: Mapping[str, str], tmp_path: Path) -> None:
    (block,) = blocks(pages["docs/google.md"], "python")
    assert '"access_token": "fake"' in python(block, tmp_path)


def test_google_the_variables_it_names_are_set(pages: Mapping[str, str], tmp_path: Path) -> None:
    endpoints = Endpoints(http=1, tls=2, proxy=3, grpc=4, folder=tmp_path, root=tmp_path, pid=5)
    named = set(re.findall(r"`([A-Z][A-Z_]{5,})`", pages["docs/google.md"]))
    assert len(named) > 11
    assert named - {"UNIMPLEMENTED", "SERVICE_DISABLED", "DENIED"} <= set(google_environment(endpoints, {}))


@pytest.mark.journey
def test_vertex_the_tests_pass_and_the_program_runs(
    pages: Mapping[str, str], pytester: pytest.Pytester, tmp_path: Path
) -> None:
    pytest.importorskip("google.cloud.aiplatform_v1", reason="needs the extra vertex")
    tests, conftest, program = blocks(pages["docs/vertex.md"], "python")
    pytester.makeconftest(conftest)
    pytester.makepyfile(test_vertex=tests)
    pytester.runpytest_subprocess().assert_outcomes(passed=tests.count("def test_"))
    assert python(program, tmp_path).splitlines()[-1] == "losses"


def test_fake_gcs_a_test_has_an_s3(pages: Mapping[str, str], pytester: pytest.Pytester) -> None:
    pytest.importorskip("boto3", reason="the extra s3 is not installed")
    _, example = blocks(pages["docs/fake-gcs.md"], "python")
    pytester.makepyfile(test_on_s3=example)
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_fake_gcs_a_test_meets_the_fault_that_it_orders(pages: Mapping[str, str], pytester: pytest.Pytester) -> None:
    pytest.importorskip("google.cloud.storage", reason="the extra google is not installed")
    example, _ = blocks(pages["docs/fake-gcs.md"], "python")
    save = (
        "from google.cloud import storage\n\n\ndef save(folder):\n"
        "    bucket, _, name = folder.removeprefix('gs://').partition('/')\n"
        "    storage.Client().bucket(bucket).blob(f'{name}/weights').upload_from_string(b'1')\n\n\n"
    )
    pytester.makepyfile(test_on_gcs=save + example)
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_gcs_paths_a_command_sees_the_store(
    pages: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    exec(compile(blocks(pages["docs/gcs-paths.md"], "python")[0], "docs/gcs-paths.md", "exec"), {})


@pytest.mark.journey
def test_gcs_paths_a_test_has_a_bucket_at_gcs(pages: Mapping[str, str], pytester: pytest.Pytester) -> None:
    pytest.importorskip("httptools", reason="the extra google is not installed")
    pytester.makepyfile(test_on_gcs=blocks(pages["docs/gcs-paths.md"], "python")[1])
    found = pytester.runpytest_subprocess().parseoutcomes()
    assert found.get("passed", 0) + found.get("skipped", 0) == 2
    assert found["passed"] >= 1
