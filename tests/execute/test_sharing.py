"""The stages of a run trace what they have in common once, and each still gets its own numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from t5x_harness.workers import Zygote

HERE = Path(__file__).parent


@pytest.mark.embedded("T5X makes a new function for each stage, which nothing can share from outside")
def test_the_steps_of_one_model_are_traced_by_the_first_stage_alone(zygote: Zygote, tmp_path: Path) -> None:
    paths = [str(HERE)]
    with zygote.start("sharing_objects:Stages", {}, log=tmp_path / "run.log", cwd=tmp_path, python_path=paths) as run:
        outputs = run.call("outputs", timeout=300)
    assert outputs["stages"] == [[[0.0, 2.0], 1], [[0.0, -1.0], 2], [[2.0, 4.0], 2], [[-1.0, -2.0], 2]]
    assert outputs["of another"] == 1
    assert outputs["of a function"] == [1.0, 2.0]
