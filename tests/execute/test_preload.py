"""Work that a zygote of runs has done once is not repeated in each run."""

from pathlib import Path

import pytest
import t5x_in_use

from t5x_harness.spec import RunSpec
from t5x_harness.upstream.short_run import SMALLEST_SLICE
from t5x_harness.variables import BRIEF_VARIABLE
from t5x_harness.workers.run_process import COLLECTED_AFTER
from t5x_harness.workers.zygote import Zygote

HERE = Path(__file__).parent


def test_a_run_imports_no_rule_or_stage(zygote: Zygote, train_text: str, tmp_path: Path) -> None:
    (tmp_path / "config.gin").write_text(train_text)
    paths = [str(HERE), str(HERE.parent / "reference")]
    spec = RunSpec(
        gin_files=("config.gin",), slice="v3:1x1", runtime=t5x_in_use.name, python_path=tuple(paths), cwd=str(tmp_path)
    )
    argument = {"spec": spec.to_json(), "workspace": str(tmp_path / "run")}
    log = tmp_path / "run.log"
    with zygote.start("preloaded_objects:Watched", argument, log=log, cwd=tmp_path, python_path=paths) as run:
        assert run.call("resolve_and_plan", timeout=300) == ["passed", "passed"]
        run.call("build_pipelines", timeout=300)
        settings = run.call("settings", timeout=60)
        assert settings["optimizer"]["disable_meta_optimizer"] is True
        assert settings["garbage"] == COLLECTED_AFTER
        assert run.call("new", timeout=60) == []


@pytest.mark.embedded("T5X makes a new function for each stage, which nothing can share from outside")
def test_the_steps_of_one_model_are_traced_by_the_first_stage_alone(zygote: Zygote, tmp_path: Path) -> None:
    with zygote.start(
        "sharing_objects:Stages", {}, log=tmp_path / "run.log", cwd=tmp_path, python_path=[str(HERE)]
    ) as run:
        outputs = run.call("outputs", timeout=300)
    assert outputs["stages"] == [[[0.0, 2.0], 1], [[0.0, -1.0], 2], [[2.0, 4.0], 2], [[-1.0, -2.0], 2]]
    assert outputs["of another"] == 1
    assert outputs["of a function"] == [1.0, 2.0]


@pytest.mark.parametrize("brief", [True, False])
def test_what_pays_only_for_many_steps_is_skipped_if_asked(zygote: Zygote, tmp_path: Path, brief: bool) -> None:
    env = {BRIEF_VARIABLE: "1" if brief else None}
    with zygote.start(
        "sharing_objects:Options", {}, log=tmp_path / "log", env=env, cwd=tmp_path, python_path=[str(HERE)]
    ) as run:
        found = run.call("read", timeout=60)
    assert found["optimises graphs"] is not brief
    assert found["tunes"] is not brief
    assert found["rewrites"] is not brief
    assert (found["smallest slice"] == SMALLEST_SLICE) is brief
