"""The examples of docs/google.md run or are parsed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from page_blocks import blocks, python

from t5x_harness.google.environment import google_environment
from t5x_harness.google.server.settings import Endpoints


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_program_runs(page: str, tmp_path: Path) -> None:
    (block,) = blocks(page, "python")
    assert '"access_token": "fake"' in python(block, tmp_path)


def test_the_variables_it_names_are_set(page: str, tmp_path: Path) -> None:
    endpoints = Endpoints(http=1, tls=2, proxy=3, grpc=4, folder=tmp_path, root=tmp_path, pid=5)
    named = set(re.findall(r"`([A-Z][A-Z_]{5,})`", page)) - {"UNIMPLEMENTED", "SERVICE_DISABLED", "DENIED"}
    assert len(named) > 8
    assert named <= set(google_environment(endpoints, {}))
