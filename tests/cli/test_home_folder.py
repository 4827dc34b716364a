"""The home folder stays as it is, whatever the libraries do when they are imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFIG = Path(__file__).parents[2] / "sample_tasks" / "configs" / "finetune_classify.gin"


@pytest.mark.stack
@pytest.mark.journey
def test_a_run_leaves_nothing_in_the_home_folder(tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if k not in ("KERAS_HOME", "XDG_CACHE_HOME")}
    env |= {"HOME": str(tmp_path), "T5X_HARNESS_CACHE_DIR": "off"}
    command = [str(Path(sys.executable).with_name("t5x-harness")), "plan", str(CONFIG)]
    done = subprocess.run(command, env=env, cwd=CONFIG.parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []
