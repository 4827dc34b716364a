"""A job on several hosts whose machine is taken away ends at one step on all hosts, and goes on from there."""

from pathlib import Path
from typing import Any

import pytest
from job_service import pool

from t5x_harness.google.vertex.faults import VertexFault
from t5x_harness.google.vertex.jobs import driver
from t5x_harness.google.vertex.jobs.endings import JobState

pytestmark = pytest.mark.journey

PROGRAM = '''
import json, pathlib, types
from t5x_harness import preemption
import jax
from jax.experimental import multihost_utils
from t5x.trainer import PreemptionError

SAVED = pathlib.Path("/gcs/b/saved.json")
HOST = jax.process_index()


class Base:
    """Stands for T5X's trainer: each step waits for all hosts."""

    def __init__(self, step):
        self.train_state = types.SimpleNamespace(step=step)
        self._compiled_train_step = None

    def _partitioned_train_step(self, state, batch):
        hosts = multihost_utils.process_allgather(jax.numpy.array(HOST))
        print("host", HOST, "of", len(hosts), "trained step", batch, flush=True)
        return types.SimpleNamespace(step=state.step + 1), None

    def train(self, batch_iter, num_steps, start_step):
        for _ in range(num_steps):
            step = self._compiled_train_step or self._partitioned_train_step
            self.train_state, _ = step(self.train_state, next(batch_iter))

    def close(self):
        pass


class Trainer(preemption.Preemptible, Base):
    pass


first = json.loads(SAVED.read_text()) if SAVED.exists() else 0
trainer = Trainer(first)
try:
    last = first + 5 if first else 2000
    trainer.train(iter(range(first, last)), last - first, first)
except PreemptionError as error:
    print("host", HOST, error, flush=True)
    multihost_utils.sync_global_devices("saved")
    if HOST == 0:
        SAVED.write_text(json.dumps(trainer.train_state.step))
    raise
print("host", HOST, "went on from", first, flush=True)
'''


def test_it_loses_no_step(service: Any, bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "WARNED_SECONDS", 30.0)
    service.api.services.faults.arm(VertexFault("preempt", output="trained step 5"))
    machine = {"machine_type": "cloud-tpu", "accelerator_type": "TPU_V3", "accelerator_count": 32}
    asked = pool("python", "-c", PROGRAM, env={"JAX_ENABLE_PREEMPTION_SERVICE": "1"}, **machine)
    job = service.ended(service.create({"worker_pool_specs": [asked]}))
    said = service.said(job)
    assert job.state == JobState.SUCCEEDED, said
    assert "The replica workerpool0-0 is preempted." in service.said(job, "service")
    saved = int((bucket / "saved.json").read_text())
    ended = {line for line in said if line.startswith("host ") and "ends at" in line}
    assert ended == {f"host {host} received SIGTERM: the training ends at step {saved}" for host in range(4)}
    trained = [int(line.rpartition(" ")[2]) for line in said if line.startswith("host 0 of 4 trained step")]
    assert trained == list(range(saved + 5))
    assert {line for line in said if "went on" in line} == {f"host {host} went on from {saved}" for host in range(4)}
