"""An inference or evaluation at the sizes of a run's own stages, in a process that may be ended on the way."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t5x_harness.execute.host_files import of_host
from t5x_harness.execute.prepare import RunData
from t5x_harness.gin.config import GinConfig
from t5x_harness.resume.injection import Injector
from t5x_harness.resume.training import Training
from t5x_harness.spec import Mode, Moment

_CHUNK_SECONDS = 5.0
"""The longest time to wait for a chunk: a ``write_fn`` may write nothing that shows its end."""


class Inference(Training):
    """Infers or evaluates as T5X's own programs do, and records what the model runs over.

    The record has a line for each process, ``{"began": true}``, and one for each dataset that the model runs over,
    ``{"rows"}``, with a digest of each example.
    """

    def _work(self, config: GinConfig, data: RunData, record: Path, local: Path, injector: Injector | None) -> None:
        import gin
        from t5x import eval as eval_module
        from t5x import utils

        from t5x_harness.execute.evaluate import inference_of, job_on
        from t5x_harness.execute.record import rows_of
        from t5x_harness.upstream.t5x import before_inferring

        number, began, infers = 0, 0.0, self._training.mode is Mode.INFER
        record.parent.mkdir(parents=True, exist_ok=True)
        with of_host(record, self._run.host).open("a", encoding="utf-8", buffering=1) as file:

            def note(line: Mapping[str, Any]) -> None:
                file.write(json.dumps(line) + "\n")

            def before(dataset: Any) -> None:
                """Records what the model is about to run over."""
                nonlocal number, began
                if injector is not None:
                    if infers and number:
                        _await_chunk(local, began)
                    injector.before_inferring(Moment.INFER if infers else Moment.EVAL, number)
                note({"rows": [row for _, features in dataset.batch(1) for row in rows_of(_plain(features))]})
                number, began = number + 1, time.time()

            note({"began": True})
            before_inferring(utils, before)
            if not infers:
                gin.get_configurable(eval_module.evaluate)()
                return
            trained = None
            if checkpoint := self._training.checkpoint:
                model, partitioner = config.build("model"), config.build("partitioner")
                trained = job_on(checkpoint, model, partitioner, str(local))
            inference_of(config, data, trained).infer(checkpoint_period=1)


def _await_chunk(folder: Path, began: float) -> None:
    """Waits until the chunk that was inferred from a time on is written, as it is by another thread.

    Otherwise it would be chance whether a process that is killed leaves this chunk, and whether T5X has renamed one of
    the two files of the position in the data, or both: after a chunk it renames them, one after the other.
    """
    deadline = time.monotonic() + _CHUNK_SECONDS
    while time.monotonic() < deadline:
        is_written = any(path.stat().st_mtime >= began for path in folder.rglob("*.COMPLETED"))
        if is_written and not any(folder.rglob("[0-9]*.ckpt.*")):
            return
        time.sleep(0.02)


def _plain(features: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.numpy() for name, value in features.items()}
