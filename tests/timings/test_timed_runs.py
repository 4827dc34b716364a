"""What the stages of a run spent their time on: all of it, with the user's own modules by name."""

from pathlib import Path

import pytest
from local_run import LocalRun

from t5x_harness.sample_tasks import CONFIGS
from t5x_harness.spec import RunSpec, Stage
from t5x_harness.workers.zygote import Zygote

SLOW = """
import time
import seqio
from t5x_harness.sample_tasks import tasks

time.sleep(0.6)  # as reading a large file would take


def wait(dataset):
    time.sleep(0.4)
    return dataset


sample = seqio.get_mixture_or_task("sample_answer")
seqio.TaskRegistry.add(
    "slow", sample.source, preprocessors=[*sample.preprocessors, wait], output_features=sample.output_features
)
"""


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    (tmp_path / "slow_tasks.py").write_text(SLOW)
    text = (CONFIGS / "infer_answer.gin").read_text()
    (tmp_path / "slow.gin").write_text(f"{text}\nimport slow_tasks\nMIXTURE_OR_TASK_NAME = 'slow'\n")
    made = RunSpec(("slow.gin",), search_paths=(str(CONFIGS),), cwd=str(tmp_path))
    return made.with_settings(timings=True)


def test_the_parts_of_each_stage_are_all_of_its_time(spec: RunSpec, zygote: Zygote, tmp_path: Path) -> None:
    with LocalRun(spec, zygote=zygote, workspace=tmp_path / "run") as run:
        stages = {stage: run.passed(stage) for stage in (Stage.RESOLVE, Stage.PLAN, Stage.INFER)}
    for result in stages.values():
        assert sum(result.parts.values()) == pytest.approx(result.seconds, rel=0.05, abs=0.05)
    resolve, infer = stages[Stage.RESOLVE], stages[Stage.INFER]
    assert resolve.parts["importing of slow_tasks.py"] >= 0.5
    assert resolve.parts["input pipelines of slow_tasks.py"] >= 0.3
    assert infer.parts["tracing"] > 0
    assert infer.counts["traces"] >= infer.counts["lowerings"] > 0
    assert infer.counts["compilations"] + infer.counts["cache hits"] == infer.counts["lowerings"]
    assert infer.counts["modules"] >= resolve.counts["modules"] > 1000
    with LocalRun(spec.with_settings(timings=False), zygote=zygote, workspace=tmp_path / "x") as run:
        assert not run.passed(Stage.RESOLVE).parts


def test_imports_are_measured_by_package(tmp_path: Path) -> None:
    (tmp_path / "light.py").write_text("import xml.dom.minidom, packaging.version, time\n")
    with Zygote(preload=["light"], python_path=[str(tmp_path)], timings=True) as zygote:
        zygote.await_ready()
        assert sum(zygote.imports.values()) > 0
    with Zygote(preload=["light"], python_path=[str(tmp_path)]) as zygote:
        zygote.await_ready()
        assert zygote.imports == {}
