"""A job binds what was changed in its config; the rest of what was changed here is no statement of Gin."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from t5x_harness.promotion.order import JobOrder
from t5x_harness.runs.stages import stages_of
from t5x_harness.runs.vertex import VertexBackend
from t5x_harness.spec import Change, Changed, Mode, Outcome, Reason, RunSpec, Stage, StageResult
from t5x_harness.vertex.machine import Machine
from t5x_harness.vertex.target import VertexTarget

CHANGES = (
    Change("TRAIN_STEPS", "100", "4", Reason.STEPS),
    Change("MODEL_DIR", "'/tmp/x'", "'/tmp/y'", Reason.SANDBOX),
    Change("vocabulary", "'gs://b/v.model'", "100 generated pieces", Reason.STANDIN, Changed.VOCABULARY),
    Change("mesh", "data 8", "data 2", Reason.SHRINK, Changed.MESH),
)


def test_a_job_binds_only_bindings(tmp_path: Path) -> None:
    (tmp_path / "run.gin").write_text("TRAIN_STEPS = 100\n")
    sent: list[Any] = []
    local: Any = SimpleNamespace(
        workspace=tmp_path,
        stages=stages_of(Mode.TRAIN),
        close=lambda: None,
        job=lambda **_: {
            "prepared": StageResult(Stage.PLAN, Outcome.PASSED, changes=CHANGES, exercised=1).to_json(),
            "output": {"name": "MODEL_DIR", "address": "gs://b/out"},
            "first_step": 0,
        },
    )

    def send(container: Any, *_: Any) -> Any:
        sent.append(container)
        return SimpleNamespace(submitted=None)

    target = VertexTarget("p", "us-central1", "my-bucket", "image")
    spec = RunSpec(("run.gin",), mode=Mode.TRAIN, cwd=str(tmp_path))
    order = JobOrder("name", target, Machine.parse("v3-8"), timeout=900)
    VertexBackend(spec, local, order, SimpleNamespace(send=send, sends=False)).submit_early()  # type: ignore[arg-type]
    (container,) = sent
    assert [argument for argument in container.args if "TRAIN_STEPS" in argument]
    assert not [argument for argument in container.args if "vocabulary" in argument or "mesh" in argument]
