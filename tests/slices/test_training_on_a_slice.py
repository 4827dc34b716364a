"""T5X trains on the emulated mesh: the recorded losses, with the parameters divided as on the slice."""

import base64
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from t5x_harness.runtime.compile_cache import compile_cheaply

REFERENCE = Path(__file__).parent.parent / "reference"
RECORD = json.loads((REFERENCE / "trajectories" / "t5_1_1.json").read_text())


@pytest.mark.stack
@pytest.mark.journey
def test_losses_are_the_recorded_ones_with_parameters_divided_as_planned(tmp_path: Path) -> None:
    from t5x_harness.execute.output import scalars_in

    model_dir = _train(tmp_path)
    losses = scalars_in(model_dir / "train")["loss"]
    recorded = {int(step): value for step, value in RECORD["scalars"]["train"]["loss"].items()}
    assert losses.keys() == recorded.keys()
    assert all(math.isclose(losses[step], recorded[step], rel_tol=1e-4) for step in recorded)

    text = json.loads((model_dir / "checkpoint_8" / "state" / "_sharding").read_text())
    sharding = {base64.b64decode(name).decode(): json.loads(value) for name, value in text.items()}
    kernel = sharding["target.encoder.layers_0.mlp.wo.kernel"]
    assert kernel["shape"] == [4, 2]
    assert kernel["partition_spec"] == ["model", None]
    devices = [[device["id"] for device in row] for row in kernel["device_mesh"]["mesh"]]
    assert devices == [[0, 1], [4, 5], [2, 3], [6, 7]]


def _train(folder: Path) -> Path:
    """Trains the case t5_1_1 with `t5x-harness exec -- python -m t5x.train`, in two partitions on a v3-8."""
    more = f'\nMODEL_DIR = "{folder}/out"\npartitioning.PjitPartitioner.num_partitions = 2\n'
    (folder / "run.gin").write_text(RECORD["gin"] + more)
    command = [sys.executable, "-m", "t5x_harness", "exec", "--slice=v3-8", "--t5x-runtime=embedded", "--"]
    env = {**os.environ, "PYTHONPATH": str(REFERENCE)}
    compile_cheaply(env)
    done = subprocess.run(
        [*command, sys.executable, "-m", "t5x.train", "--gin_file=run.gin"],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env=env,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder / "out"
