"""A promoted run's job receives bindings for all changes, and the files of this machine that it lacks are reported."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from t5x_harness.promotion.order import JobOrder
from t5x_harness.runs.job import JobExecutor
from t5x_harness.runs.run import Run
from t5x_harness.spec import Change, Changed, FactTable, Mode, Outcome, Reason, RunSpec, Stage, StageResult
from t5x_harness.vertex.machine import Machine
from t5x_harness.vertex.target import VertexTarget

CHANGES = (
    Change("TRAIN_STEPS", "100", "4", Reason.STEPS),
    Change("MODEL_DIR", "'/tmp/x'", "'/tmp/y'", Reason.SANDBOX),
    Change("vocabulary", "'gs://b/v.model'", "100 generated pieces", Reason.STANDIN, Changed.VOCABULARY),
    Change("mesh", "data 8", "data 2", Reason.SHRINK, Changed.MESH),
)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., tuple[JobExecutor, Run]]:
    """Makes a promoted run, and its executor from one that runs stages here."""
    (tmp_path / "run.gin").write_text("TRAIN_STEPS = 100\n")
    target = VertexTarget("p", "us-central1", "my-bucket", "image")
    order = JobOrder("name", target, Machine.parse("v3-8"), timeout=900)

    def made(local: Any, **jobs: Any) -> tuple[JobExecutor, Run]:
        executor = JobExecutor(local, order, lambda: SimpleNamespace(**jobs))
        spec = RunSpec(("run.gin",), mode=Mode.TRAIN, cwd=str(tmp_path))
        return executor, Run(spec, executor, workspace=tmp_path)

    return made


def test_a_job_binds_only_bindings(make: Any) -> None:
    sent: list[Any] = []
    local: Any = SimpleNamespace(
        close=lambda: None,
        job=lambda *_, **__: {
            "prepared": StageResult(Stage.PLAN, Outcome.PASSED, changes=CHANGES, exercised=1).to_json(),
            "output": {"name": "MODEL_DIR", "address": "gs://b/out"},
            "first_step": 0,
        },
    )

    def send(container: Any, *_: Any) -> Any:
        sent.append(container)
        return SimpleNamespace(submitted=None)

    executor, run = make(local, send=send, sends=False)
    executor.submit(run)
    (container,) = sent
    assert [argument for argument in container.args if "TRAIN_STEPS" in argument]
    assert not [argument for argument in container.args if "vocabulary" in argument or "mesh" in argument]


def test_a_vocabulary_that_a_job_will_not_have_is_said_once_resolve_knows_it(make: Any, tmp_path: Path) -> None:
    (tmp_path / "own.model").write_text("")
    table = FactTable("vocabulary", ("of", "file"), (("my_task", f"{tmp_path}/own.model"),))
    resolved = StageResult(Stage.RESOLVE, Outcome.PASSED, not_checked=("a",), tables=(table,), exercised=1)
    executor, run = make(SimpleNamespace(stage=lambda run, stage: resolved))
    found = executor.stage(run, Stage.RESOLVE)
    assert found.not_checked == (
        "a",
        f"whether the job has {tmp_path}/own.model, the vocabulary of my_task: a job does not have this machine's "
        "files; copy it to a bucket and name it gs://BUCKET/…, unless the image has it at this path",
    )
