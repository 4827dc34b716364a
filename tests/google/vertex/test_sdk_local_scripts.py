"""``CustomJob.from_local_script`` of unmodified SDKs: the script is packaged, installed with pip in a job, and run."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pytest

Sdk = Callable[..., Any]

RUN = """
    import pathlib, time
    from google.cloud import storage
    bucket = storage.Client().create_bucket(name)
    init(staging_bucket=f"gs://{name}")
    script = pathlib.Path.home() / f"{name}.py"
    script.write_text(
        "import os, pathlib, sys, numpy\\n"
        "path = os.environ['AIP_MODEL_DIR'].replace('gs://', '/gcs/')\\n"
        "pathlib.Path(path).mkdir(parents=True)\\n"
        "pathlib.Path(path, 'seen').write_text(f'{numpy.__version__} {sys.argv[1:]} {__name__}')\\n"
    )
    job = ai.CustomJob.from_local_script(
        display_name=name, script_path=str(script), container_uri=image, requirements=requirements,
        args=["--steps=1"], base_output_dir=f"gs://{name}/out")
    job.submit()
    while job.state.name in ("JOB_STATE_QUEUED", "JOB_STATE_PENDING", "JOB_STATE_RUNNING"):
        time.sleep(0.05)  # job.run() would look every five seconds
    seen = bucket.blob("out/model/seen")
    result = [job.state.name, seen.download_as_text() if seen.exists() else job.error.message]
"""


@pytest.mark.parametrize("image", ["gcr.io/p/t5x:1", "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-14.py310:latest"])
def test_a_script_runs_in_a_container_of_its_own_and_in_a_prebuilt_one(sdk: Sdk, image: str) -> None:
    assert sdk(RUN, image=image, requirements=["numpy>=1.20"]) == [
        "JOB_STATE_SUCCEEDED",
        f"{version('numpy')} ['--steps=1'] __main__",
    ]
