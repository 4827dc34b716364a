"""Configs that are read from a bucket, together with the files that they include.

Neither T5X nor gin has its own reader for buckets (gin.tf, which had one, fails to import with this TensorFlow). A job
registers TensorFlow's reader with gin.
"""

import sys
from collections.abc import Callable
from typing import Any

import pytest

READER = "gin.config.register_file_reader(tf.io.gfile.GFile, tf.io.gfile.exists)"
JOB = f"""
import runpy, gin, tensorflow as tf
{READER}
runpy.run_module("t5x.main", run_name="__main__", alter_sys=True)
"""
MAIN = """
from __gin__ import dynamic_registration
from t5x import utils

include "gs://{bucket}/configs/base.gin"

RATE = 0.5
utils.SaveCheckpointConfig.period = %PERIOD
"""
BASE = "RATE = 0.25\nPERIOD = 7\n"


def test_gin_by_tensorflows_reader(tensors: Any, fake_gcs: Any, gcs_bucket: str) -> None:
    fake_gcs.put(gcs_bucket, {"configs/main.gin": f'include "gs://{gcs_bucket}/configs/base.gin"\nRATE = 0.5\n'})
    fake_gcs.put(gcs_bucket, {"configs/base.gin": BASE})
    told = tensors(
        f"import gin; {READER}\n"
        """
with gin.unlock_config():
    gin.parse_config_file(f"gs://{bucket}/configs/main.gin")
result = [gin.query_parameter("%RATE"), gin.query_parameter("%PERIOD")]
gin.clear_config(clear_constants=True)
try:
    gin.parse_config_file(f"gs://{bucket}/configs/none.gin")
except OSError as error:
    result.append("none.gin" in str(error))
""",
        bucket=gcs_bucket,
    )
    assert told == [0.5, 7, True]


@pytest.mark.journey
def test_t5x_main(run_command: Callable[..., None], fake_gcs: Any, gcs_bucket: str) -> None:
    pytest.importorskip("seqio", reason="the extra t5x is not installed")
    fake_gcs.put(gcs_bucket, {"configs/main.gin": MAIN.format(bucket=gcs_bucket), "configs/base.gin": BASE})
    flags = ["--run_mode=train", "--dry_run", f"--gin_file=gs://{gcs_bucket}/configs/main.gin"]
    run_command(sys.executable, "-m", "t5x_harness", "exec", "--", sys.executable, "-c", JOB, *flags)
    read = [request.object for request in fake_gcs.requests if request.operation == "download"]
    assert {"configs/main.gin", "configs/base.gin"} <= set(read)
