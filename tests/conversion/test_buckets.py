"""Conversion from and to ``gs://`` through Cloud Storage's API, as with real buckets."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tiny_models import STEP, parameters_of, write

from t5x_harness.conversion.request import ConversionRequest, Form
from t5x_harness.variables import ROOT_VARIABLE
from t5x_harness.vertex.cloud import GoogleSession

pytest.importorskip("tensorflow", reason="reads and writes gs://")

_IN_ONE_PROCESS = """
import json, sys
from t5x_harness.conversion.conversion import convert
from t5x_harness.conversion.request import ConversionError
from t5x_harness.conversion.request import Form, ConversionRequest
made = []
for fields in json.loads(sys.stdin.read()):
    try:
        made.append(convert(ConversionRequest(**{**fields, "to": Form(fields["to"])})).to_json())
    except ConversionError as error:
        made.append(str(error))
print(json.dumps(made))
"""
_RESTORED = """
import sys, numpy as np
from t5x_harness.runtime.import_hooks import ensure_t5x
ensure_t5x()
import orbax.checkpoint as ocp
options = ocp.CheckpointManagerOptions(step_prefix="checkpoint", read_only=True)
manager = ocp.CheckpointManager(sys.argv[1], options=options, item_handlers={"state": ocp.PyTreeCheckpointHandler()})
state = manager.restore(manager.latest_step(), args=ocp.args.Composite(state=ocp.args.PyTreeRestore()))["state"]
print(manager.latest_step(), float(np.sum(np.abs(state["target"]["decoder"]["logits_dense"]["kernel"]))))
"""
_WRITES = """
import sys
from t5x_harness.conversion.request import ConversionError
from t5x_harness.conversion.conversion import written_whole
for _ in sys.stdin:
    try:
        with written_whole("gs://my-bucket/two") as folder:
            (folder / "file").write_text("x")
            print("writes", flush=True)
            sys.stdin.readline()
    except ConversionError as error:
        print(error, flush=True)
    else:
        print("has written", flush=True)
"""


@pytest.fixture(scope="module")
def buckets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Mapping[str, str]]]:
    """The folder of a bucket, and the environment of a process that does not know that the bucket is emulated."""
    root = tmp_path_factory.mktemp("cloud")
    write(root / "buckets/my-bucket/run", "t5_1_1")
    with GoogleSession(root) as session:
        variables = {**os.environ, **session.environment(), "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"}
        yield root / "buckets/my-bucket", {**variables, ROOT_VARIABLE: ""}


def python(program: str, environment: Mapping[str, str], *words: str, given: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        env=environment,
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.journey
def test_it_reads_and_writes_gs(buckets: tuple[Path, Mapping[str, str]], tmp_path: Path) -> None:
    folder, environment = buckets
    requests: list[ConversionRequest] = [
        ConversionRequest("gs://my-bucket/run", Form.TRANSFORMERS, "gs://my-bucket/hf"),
        ConversionRequest(f"gs://my-bucket/run/checkpoint_{STEP}", Form.T5X, "gs://my-bucket/back"),
        ConversionRequest("gs://my-bucket/run", Form.TRANSFORMERS, "gs://my-bucket/hf"),
        ConversionRequest("gs://my-bucket/run", Form.SAFETENSORS, "gs://no-bucket/arrays"),
        ConversionRequest(f"gs://my-bucket/back/checkpoint_{STEP}", Form.SAFETENSORS, str(tmp_path / "arrays")),
    ]
    given = json.dumps([{"checkpoint": each.checkpoint, "to": each.to, "output": each.output} for each in requests])
    made: list[Any] = json.loads(python(_IN_ONE_PROCESS, environment, given=given))
    assert made[0]["output"] == "gs://my-bucket/hf"
    assert sorted(path.name for path in (folder / "hf").iterdir()) == sorted(made[0]["files"])
    assert made[1]["output"] == f"gs://my-bucket/back/checkpoint_{STEP}"
    assert made[2].startswith("gs://my-bucket/hf holds config.json, generation_config.json, model.safetensors already")
    assert made[3].startswith("gs://no-bucket/arrays cannot be written: ")
    assert made[4]["arrays"] == made[1]["arrays"]
    # orbax accepts the checkpoint at gs:// as a finished one.
    step, total = python(_RESTORED, environment, "gs://my-bucket/back").split()
    assert (int(step), float(total)) == (
        STEP,
        pytest.approx(abs(parameters_of("t5_1_1")["decoder/logits_dense/kernel"]).sum()),
    )


@pytest.mark.journey
def test_of_two_processes_one_writes_until_it_is_killed(buckets: tuple[Path, Mapping[str, str]]) -> None:
    folder, environment = buckets

    def start() -> subprocess.Popen[str]:
        command, pipe = [sys.executable, "-c", _WRITES], subprocess.PIPE
        return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)

    def answer(process: subprocess.Popen[str]) -> str:
        process.stdin.write("\n")
        process.stdin.flush()
        return process.stdout.readline()

    with start() as first, start() as second:
        assert answer(first) == "writes\n"
        refused = answer(second)
        assert f"another conversion is writing gs://my-bucket/two: process {first.pid} on " in refused
        first.kill()
        first.wait()
        assert not (folder / "two").exists()
        assert [answer(second), answer(second)] == ["writes\n", "has written\n"]
        second.communicate()
    assert [path.name for path in (folder / "two").iterdir()] == ["file"]
    assert not list(folder.glob(".*"))
