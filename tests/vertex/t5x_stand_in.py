"""Replaces T5X's main in test jobs: takes the same flags, reads gin files, and writes the same files, without JAX.

Macros in the config control it: ``STAND_IN_SECONDS`` is the time that it runs, ``STAND_IN_STATUS`` its exit status.
"""

import io
import re
import sys
import time
from pathlib import Path

from google.cloud import storage
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

HEAD = "I1122 07:58:04.897587 140352944569216 "
SAYS = {
    "on-tpu": [
        "partitioning.py:257] global_mesh devices: [[TpuDevice(id=0, process_index=0, coords=(0,0,0), core_on_chip=0)]",
        " [TpuDevice(id=1, process_index=0, coords=(0,0,0), core_on_chip=1)]",
        "partitioning.py:258] global_mesh devices shape: (8, 1)",
    ],
    "without-libtpu": ["xla_bridge.py:849] Unable to initialize backend 'tpu': INTERNAL: Failed to open libtpu.so"],
    "silent": [],
}
"""The log lines of a machine with a TPU, by the name of the run for which they are printed."""


def main(arguments: list[str]) -> int:
    for name, lines in SAYS.items():
        for line in lines if f"/test-{name}/" in " ".join(arguments) else ():  # in MODEL_DIR
            print(HEAD + line, flush=True)
    flags = [tuple(argument.removeprefix("--").split("=", 1)) for argument in arguments]
    text = "".join(_read(value) for name, value in flags if name == "gin_file")
    bound = {name.removeprefix("gin."): value for name, value in flags if name.startswith("gin.")}
    print(f"run_mode {dict(flags)['run_mode']}", flush=True)
    model_dir = bound["MODEL_DIR"].strip("\"'")
    _write(model_dir, "config.gin", text.encode())
    _write(model_dir, "model-info.txt", b"parameters: 1")
    _write(model_dir, "train/events.out.tfevents.1", _events("loss", {1: 2.5, 2: 1.5}))
    _write(model_dir, "inference_eval/my_task/events.out.tfevents.1", _events("accuracy", {1: 50.0, 2: 75.0}))
    time.sleep(float(bound.get("STAND_IN_SECONDS", "0")))
    return int(bound.get("STAND_IN_STATUS", "0"))


def _read(path: str) -> str:
    """Returns a gin file's text with its includes, except for T5X's own files, which do not exist here."""
    text = Path(path).read_text()
    print(f"read {path.rpartition('/')[2]}", flush=True)
    included = re.findall(r"^include '(/gcs/.+)'$", text, re.MULTILINE)
    return "".join(_read(name) for name in included) + text


def _write(folder: str, name: str, content: bytes) -> None:
    bucket, _, prefix = folder.removeprefix("gs://").partition("/")
    storage.Client(project="t5x-harness").bucket(bucket).blob(f"{prefix}/{name}").upload_from_string(content)


def _events(tag: str, values: dict[int, float]) -> bytes:
    file = io.BytesIO()
    writer = RecordWriter(file)
    for step, value in values.items():
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
        writer.write(Event(step=step, wall_time=time.time(), summary=summary).SerializeToString())
    return file.getvalue()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
