"""Jobs of T5X on the emulated Vertex AI, judged by the TPU's own compiler before their processes begin."""

from __future__ import annotations

import importlib.util
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asking import ask

from t5x_harness.aot.rules.programs import OutOfDeviceMemory
from t5x_harness.google.session import GoogleSession
from t5x_harness.google.vertex.settings import VertexOptions
from t5x_harness.google.vertex_admin import FakeVertex
from t5x_harness.spec import AotMode
from t5x_harness.variables import CACHE_VARIABLE

pytestmark = [
    pytest.mark.journey,
    pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed"),
]

PATIENCE = 300.0


def submit(session: GoogleSession, name: str, *bindings: str) -> None:
    """Sends a job of T5X's image that trains /gcs/my-bucket/run.gin on a v3-8."""
    container = {
        "imageUri": "gcr.io/my-project/t5x:1",
        "args": ["--run_mode=train", "--gin_file=/gcs/my-bucket/run.gin", *(f"--gin.{each}" for each in bindings)],
        "env": [{"name": "PYTHONPATH", "value": "/gcs/my-bucket"}],
    }
    machine = {"machineType": "cloud-tpu", "acceleratorType": "TPU_V3", "acceleratorCount": 8}
    pool = {"machineSpec": machine, "replicaCount": 1, "containerSpec": container}
    made = ask(
        session,
        "us-central1-aiplatform.googleapis.com",
        "/v1/projects/t5x-harness/locations/us-central1/customJobs",
        method="POST",
        body={"displayName": name, "jobSpec": {"workerPoolSpecs": [pool]}},
        headers={"Authorization": f"Bearer {(session.endpoints.folder / 'token').read_text()}"},
    )
    assert "name" in made, made


def until(look: Callable[[], Any]) -> Any:
    """What is seen, as soon as it is something."""
    deadline = time.monotonic() + PATIENCE
    while not (seen := look()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return seen


def test_a_job_that_exceeds_its_slice_fails_with_the_compilers_numbers_and_a_smaller_one_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    bucket = tmp_path / "cloud" / "buckets" / "my-bucket"
    bucket.mkdir(parents=True)
    for name, text in {**OutOfDeviceMemory.bad.files, "run.gin": OutOfDeviceMemory.bad.gin}.items():
        (bucket / name).write_text(text)
    with GoogleSession(tmp_path / "cloud", vertex=VertexOptions(aot=AotMode.MEMORY)) as session:
        vertex = FakeVertex(session)
        model_dir = "MODEL_DIR='gs://my-bucket/trained'"
        submit(session, "large", model_dir)
        submit(session, "small", model_dir, "BATCH_SIZE=128")  # whose turn at the compiler comes after

        large = vertex.wait("large", seconds=PATIENCE)
        assert large.state == "JOB_STATE_FAILED"
        assert large.error.startswith("The replica workerpool0-0 exited with a non-zero status of 1.")
        lines = vertex.logs("large")
        [said] = [line for line in lines if line.startswith("RESOURCE_EXHAUSTED")]
        numbers = re.fullmatch(
            r"RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for "
            r"HLO temporaries \((.*)G\) exceeds available HBM \((.*)G\)\. HLO module: jit_train_step\.",
            said,
        )
        assert numbers
        assert float(numbers[2]) == 15.48 < float(numbers[1])
        assert "Traceback" not in "\n".join(lines)
        assert not (bucket / "trained").exists()

        judged = until(lambda: [line for line in vertex.logs("small") if "has judged" in line])
        assert re.fullmatch(
            r"t5x-harness has judged the job on v3-8: train fits, peak .*; train_eval fits, .*", *judged
        )
        until(lambda: any("run.gin" in line or "absl" in line for line in vertex.logs("small")))  # T5X began
