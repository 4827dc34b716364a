"""Compares the programs that the TPU's compiler makes for the embedded T5X and for T5X itself.

    T5X_HARNESS_TEST_T5X=/path/to/a/checkout/of/t5x python benchmarks/embedded_programs.py [--write docs/fidelity.md]

T5X's own requirements and libtpu have to be installed; more folders that it needs can follow its own, separated by
colons. Nothing is kept between compilations. A figure is how much more (+) or less (-) the embedded T5X needs; 0
means equal.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from reporting import script, write_table

CONFIGS = Path(__file__).resolve().parents[1] / "sample_tasks" / "configs"

OTHER_NETWORK = """\
from __gin__ import dynamic_registration
import __main__ as infer_script
from t5x import utils
from t5x.examples.{network} import network
from t5x_harness.sample_tasks import vocabularies
include 't5x/examples/{model}.gin'
include 't5x/configs/runs/infer.gin'
import t5x_harness.sample_tasks.tasks
VOCABULARY = @vocabularies.sentencepiece()
CHECKPOINT_PATH = 'gs://my-bucket/model/checkpoint_1000'
MIXTURE_OR_TASK_NAME = 'sample_translate'
TASK_FEATURE_LENGTHS = {{'inputs': 64, 'targets': 48}}
DROPOUT_RATE = 0.0
utils.DatasetConfig.split = 'validation'
utils.DatasetConfig.batch_size = 16
network.{config}.emb_dim = 64
network.{config}.mlp_dim = 128
network.{config}.num_heads = 4
network.{config}.head_dim = 16
network.{config}.vocab_size = 640
"""
WIDTH_512 = """
network.T5Config:
  emb_dim = 512
  mlp_dim = 1024
  num_heads = 8
  head_dim = 64
  num_encoder_layers = 4
  num_decoder_layers = 4
  vocab_size = 32128
"""
TOP_40 = """
models.EncoderDecoderModel.decode_fn = @decoding.temperature_sample
decoding.temperature_sample.topk = 40
"""
IMPORTS = """\
from t5x import decoding
from t5x import models
from t5x import utils
from t5x.examples.t5 import network
"""


@dataclasses.dataclass(frozen=True)
class Row:
    """A config whose programs are compared.

    Attributes:
      what: its network and decoding, in words.
      text: the config's text.
    """

    what: str
    text: str


def sample(name: str) -> str:
    """Returns the text of a sample config, with the imports that its added bindings need."""
    return (CONFIGS / name).read_text(encoding="utf-8").replace("from t5x import utils\n", IMPORTS)


SMALL, WIDE = "the sample tasks' network", "width 512, 4 layers, 32,128 tokens"
ROWS = (
    Row(f"{SMALL}, beam search", sample("finetune_translate.gin")),
    Row(f"{SMALL}, microbatches", sample("pretrain_stream.gin")),
    Row(f"{SMALL}, `topk = 40`", sample("infer_translate.gin") + TOP_40),
    Row(SMALL, sample("infer_translate.gin") + "infer_script.infer.mode = 'score'\n"),
    Row(f"{WIDE}, beam search", sample("infer_translate.gin") + WIDTH_512),
    Row(f"{WIDE}, `topk = 40`", sample("infer_translate.gin") + WIDTH_512 + TOP_40),
    Row(
        "`scalable_t5`, scanned layers, width 64",
        OTHER_NETWORK.format(network="scalable_t5", model="scalable_t5/t5_1_1/small", config="T5Config"),
    ),
    Row(
        "decoder only, prefix language model, width 64",
        OTHER_NETWORK.format(network="decoder_only", model="decoder_only/models/base", config="TransformerConfig"),
    ),
)
MEASURES = ("hbm_peak", "hbm_needed", "flops_of_a_device", "hbm_traffic_of_a_device", "collective_bytes")


def measured(row: Row, runtime: str) -> dict[str, dict[str, float]]:
    """Returns the measures of each program of a config, with its collectives added up."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "run.gin"
        config.write_text(row.text, encoding="utf-8")
        command = [
            *(script("t5x-harness"), "plan", str(config), "--aot=full", "--slice=v3-8"),
            *("--format=json", "-q", f"--t5x-runtime={runtime}", f"--gin_search_paths={CONFIGS}"),
        ]
        folders = os.environ["T5X_HARNESS_TEST_T5X"]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd=folders.split(os.pathsep)[0],  # the folder of the decoder-only files in T5X itself
            env={**os.environ, "T5X_HARNESS_CACHE_DIR": "off", "PYTHONPATH": folders},
        )
    try:
        stages = json.loads(done.stdout)["runs"][0]["stages"]
        measures = next(stage for stage in stages if stage["stage"] == "aot")["measures"]
    except (ValueError, LookupError, StopIteration):
        sys.exit(f"{row.what}: {' '.join(command)} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    found: dict[str, dict[str, float]] = {}
    for measure in measures:
        program = measure["of"].split("/")[0]
        if measure["name"] in MEASURES:
            of_program = found.setdefault(program, dict.fromkeys(MEASURES, 0.0))
            of_program[measure["name"]] += measure["value"]
    if not found:
        sys.exit(f"{row.what}: nothing was compiled:\n{done.stdout[-3000:]}")
    return found


def lines_of(row: Row) -> Iterator[str]:
    """Yields a line of the table for each program of a config."""
    theirs, ours = measured(row, "installed"), measured(row, "embedded")
    for program, values in theirs.items():
        cells = [_more(ours[program][name], values[name]) for name in MEASURES]
        yield f"| {program}, {row.what} ({values['hbm_peak'] / 2**20:.3g} MiB) | {' | '.join(cells)} |"


def _more(ours: float, theirs: float) -> str:
    if ours == theirs:
        return "0"
    return f"{100 * (ours - theirs) / theirs:+.2g} %" if theirs else f"{ours:g} of 0"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="a page whose table is replaced")
    arguments = parser.parse_args()
    lines = [
        "| program | peak | needed | operations | memory traffic | bytes of collectives |",
        "|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        for line in lines_of(row):
            print(line, flush=True)
            lines.append(line)
    if arguments.write:
        write_table(arguments.write, "embedded_programs", "\n".join(lines))


if __name__ == "__main__":
    main()
