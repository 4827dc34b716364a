"""Compares the cost of `pytest -m smoke` with everything on gs:// and with the same config on local paths.

    python benchmarks/smoke_gcs.py [--rounds 3] [--write docs/performance.md]

Each round runs one config three times in separate calls, with a compile cache that an earlier call filled:

local     without an emulated Google Cloud: output and stand-ins in local folders
gs        MODEL_DIR and the initial checkpoint on gs://, including the start of the emulated Google Cloud
gcs path  the same on /gcs/

Figures are medians over the rounds; ratios are made inside each round first.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from reporting import report, script
from smoke import CONFIGS, FIRST, ROOT, call

SMOKE = (script("pytest"), "-q", "-m", "smoke", "-p", "no:cacheprovider", str(CONFIGS / FIRST))


def smoke(cache: Path, *, folder: str | None) -> float:
    """Returns the seconds of a call with MODEL_DIR and INITIAL_CHECKPOINT_PATH in ``folder``; None for local paths."""
    if folder is None:
        return call([*SMOKE, "--t5x-gcs=off"], cache, ROOT)
    bindings = {"MODEL_DIR": f"{folder}/run", "INITIAL_CHECKPOINT_PATH": f"{folder}/pretrained/checkpoint_10000"}
    return call([*SMOKE, *(f"--t5x-gin={name} = '{value}'" for name, value in bindings.items())], cache, ROOT)


def measure(cache: Path) -> dict[str, float]:
    """Makes one round."""
    local, gs, path = (smoke(cache, folder=folder) for folder in (None, "gs://my-bucket", "/gcs/my-bucket"))
    return {"local": local, "gs": gs, "gcs path": path, "gs / local": gs / local, "gcs path / local": path / local}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        smoke(Path(name), folder=None)  # fills the compile cache
        report("smoke_gcs", functools.partial(measure, Path(name)), rounds=3, description=__doc__)
