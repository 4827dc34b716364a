"""Runs a converted model in transformers, in a separate process.

Some of the libraries that PyTorch loads, such as Triton, silently end a process that has loaded TensorFlow. Therefore
the process that runs the model imports neither TensorFlow nor any part of the harness that does, and its end is
reported as an error in the calling process.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from t5x_harness.conversion.request import ConversionError
from t5x_harness.system.diagnosis import describe_returncode, read_tail
from t5x_harness.system.processes import die_with_parent

Array = np.ndarray[Any, Any]

_INPUTS, _OUTPUTS, _LOG = "inputs.npz", "outputs.npz", "log"
_SHOWN = 12


def run_in_transformers(
    folder: Path, model_class: str, inputs: Array, targets: Array, new_tokens: int
) -> tuple[Array, Array]:
    """Runs a model on the CPU in float32.

    Args:
      folder: the model, with config.json and safetensors.
      model_class: the name of its class in transformers.
      inputs: the inputs of the encoder, int64[batch, length], padded with zeros.
      targets: the inputs of the decoder, int64[batch, length].
      new_tokens: the maximum number of tokens that greedy decoding may generate.

    Returns:
      The logits for ``targets``, float32[batch, length, vocabulary], and the greedy outputs, including the decoder's
      start token, int64[batch, generated].

    Raises:
      ConversionError: transformers cannot load or run the model, or the process was killed; the message has the end of
        its log.
    """
    with tempfile.TemporaryDirectory(prefix="t5x-harness-check-") as scratch:
        place = Path(scratch)
        np.savez(place / _INPUTS, inputs=inputs, targets=targets)
        settings = {"folder": str(folder), "class": model_class, "new_tokens": new_tokens}
        # -P: a file in the working directory must not replace a library.
        arguments = [scratch, json.dumps(settings), str(os.getpid())]
        command = [sys.executable, "-P", "-X", "faulthandler", "-m", __name__, *arguments]
        with (place / _LOG).open("wb") as log:
            # HF_HUB_OFFLINE: otherwise, transformers may query the hub.
            environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
            ended = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, check=False
            ).returncode
        if ended:
            raise ConversionError(
                f"--check: the process that runs the model in transformers {describe_returncode(ended)}. Nothing was "
                f"written; convert without --check if the model is not to be compared.{_end_of(place / _LOG)}"
            )
        with np.load(place / _OUTPUTS, allow_pickle=False) as found:
            return found["logits"], found["tokens"]


def _end_of(log: Path) -> str:
    """Returns the end of a process's log below a heading; after a crash, the lines starting with the signal."""
    lines = read_tail(log).splitlines()
    crash = next((number for number, line in enumerate(lines) if line.startswith("Fatal Python error")), None)
    shown = lines[-_SHOWN:] if crash is None else lines[crash : crash + _SHOWN]
    return "".join(f"\n  {line}" for line in ("the end of its log:", *shown)) if shown else " It wrote nothing"


def _run(scratch: Path, settings: dict[str, Any]) -> None:
    import torch
    import transformers

    logging: Any = transformers.logging
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    kind = getattr(transformers, settings["class"])
    model = kind.from_pretrained(settings["folder"], dtype=torch.float32, local_files_only=True)
    model.eval()
    with np.load(scratch / _INPUTS, allow_pickle=False) as given:
        inputs, targets = given["inputs"], given["targets"]
    ids, mask = torch.tensor(inputs), torch.tensor((inputs != 0).astype(np.int64))
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=mask, decoder_input_ids=torch.tensor(targets)).logits
        tokens = model.generate(
            input_ids=ids, attention_mask=mask, max_new_tokens=settings["new_tokens"], do_sample=False, num_beams=1
        )
    np.savez(scratch / _OUTPUTS, logits=logits.numpy(), tokens=tokens.numpy())


if __name__ == "__main__":
    die_with_parent(int(sys.argv[3]))
    _run(Path(sys.argv[1]), json.loads(sys.argv[2]))
