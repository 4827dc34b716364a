"""Compiles public T5 models with the TPU's compiler, with all layers or extrapolated from few, and measures the cost.

    python benchmarks/aot.py [--rows small,base,…] [--write docs/aot.md]

Each figure has its own process, and nothing is kept between them.  ``measured before`` has the peaks that an
earlier compiler reported for the same programs (libtpu 0.0.51), in GiB.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from reporting import script, write_table

ROOT = Path(__file__).resolve().parents[1]

CONFIG = """\
from __gin__ import dynamic_registration
import __main__ as {mode}_script
import seqio
from t5x import models
from t5x import partitioning
from t5x import trainer
from t5x import utils
from t5x.examples.{network} import network
include "t5x/examples/{model}.gin"
include "t5x/configs/runs/{run}.gin"
import t5x_harness.sample_tasks.tasks
MIXTURE_OR_TASK_NAME = "{task}"
TASK_FEATURE_LENGTHS = {lengths}
DROPOUT_RATE = {dropout}
seqio.SentencePieceVocabulary.sentencepiece_model_file = "{vocabulary}"
seqio.SentencePieceVocabulary.extra_ids = 100
{more}
"""


@dataclasses.dataclass(frozen=True)
class Row:
    """A program to compile.

    Attributes:
      model: the gin file below T5X's examples.
      slice: the slice to compile for.
      batch: the examples of all devices together.
      layers: the layers of each stack; 0 for the model's own number.
      program: the name of one of the run's programs.
      bindings: additional bindings of the config.
      before: the peak in GiB that an earlier compiler reported; None if none is recorded.
    """

    model: str
    slice: str = "v3-8"
    batch: int = 128
    layers: int = 0
    program: str = "train"
    bindings: tuple[str, ...] = ()
    before: float | None = None


_TWO, _EIGHT = (f"partitioning.PjitPartitioner.num_partitions = {number}" for number in (2, 8))
_SUBMESH = "partitioning.PjitPartitioner.model_parallel_submesh = (2, 1, 1, 1)"
_NO_NUMBER = "partitioning.PjitPartitioner.num_partitions = None"
_LAYERS = ("network.T5Config.num_encoder_layers", "network.T5Config.num_decoder_layers")

ROWS = {
    "small-2": Row("t5/t5_1_1/small", layers=2, before=0.797),
    "small-2-eval": Row("t5/t5_1_1/small", layers=2, program="train_eval", before=0.396),
    "small-2-predict": Row("t5/t5_1_1/small", batch=32, layers=2, program="predict", before=0.244),
    "small-4": Row("t5/t5_1_1/small", layers=4, before=1.190),
    "small": Row("t5/t5_1_1/small", before=1.96),
    "base": Row("t5/t5_1_1/base", before=5.28),
    "large-2": Row("t5/t5_1_1/large", "v3-32", 512, 2, bindings=(_TWO,), before=2.04),
    "large-4": Row("t5/t5_1_1/large", "v3-32", 512, 4, bindings=(_TWO,), before=2.87),
    "large": Row("t5/t5_1_1/large", "v3-32", 512, bindings=(_TWO,)),
    "xl-2": Row("t5/t5_1_1/xl", "v3-128", 512, 2, bindings=(_EIGHT,), before=2.90),
    "small-2-v4": Row(
        "t5/t5_1_1/small",
        "v4-32",
        layers=2,
        bindings=(_TWO,),
        before=0.413,
    ),
    "small-2-v5e": Row("t5/t5_1_1/small", "v5e-16", layers=2, bindings=(_NO_NUMBER, _SUBMESH), before=0.442),
    "small-2-v3-512": Row("t5/t5_1_1/small", "v3-512", 2048, 2, before=2.23),
    "scalable-base": Row("scalable_t5/t5_1_1/base"),
    "decoder-base": Row("decoder_only/models/base", bindings=("VOCABULARY = @seqio.ByteVocabulary()",)),
}


def measured(row: Row, mode: str, folder: Path) -> dict[str, float]:
    """Returns the measures of a row's program and of the run's plan, by name."""
    decoder_only = row.model.startswith("decoder_only")
    predicts = row.program == "predict"
    job = (
        [f"utils.DatasetConfig.batch_size = {row.batch}", 'utils.DatasetConfig.split = "validation"']
        if predicts
        else [f"BATCH_SIZE = {row.batch}", "USE_CACHED_TASKS = False", "TRAIN_STEPS = 100_000"]
    )
    text = CONFIG.format(
        mode="eval" if predicts else "train",
        run="eval" if predicts else "pretrain",
        network=row.model.split("/")[0],
        model=row.model,
        task="sample_stream" if decoder_only else "sample_answer" if predicts else "sample_span_corruption",
        lengths={"targets": 512} if decoder_only else {"inputs": 512, "targets": 114},
        dropout=0.0 if predicts else 0.1,
        vocabulary=ROOT / "sample_tasks" / "data" / "sentencepiece.model",
        more="\n".join([*job, *row.bindings, *(f"{name} = {row.layers}" for name in _LAYERS if row.layers)]),
    )
    config = folder / "run.gin"
    config.write_text(text, encoding="utf-8")
    command = [
        script("t5x-harness"),
        "plan",
        str(config),
        f"--aot={mode}",
        "--slice",
        row.slice,
        "--json",
        "-q",
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "T5X_HARNESS_CACHE_DIR": "off"}
    )
    try:
        report = json.loads(done.stdout)
        stages = report["runs"][0]["stages"]
    except (ValueError, LookupError):
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    aot = next(stage for stage in stages if stage["stage"] == "aot")
    found = {m["name"]: m["value"] for m in aot.get("measures", ()) if m.get("of") == row.program}
    if not found:
        sys.exit(f"{row}: {json.dumps(report['findings'], indent=1)}")
    return found


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(ROWS), help="which, with commas between them")
    parser.add_argument("--write", type=Path, help="a page whose table is replaced")
    arguments = parser.parse_args()
    lines = [
        "| program | slice | layers | peak, extrapolated (GiB) | peak, all layers (GiB) | measured before | "
        "extrapolated / all | CPU-s, extrapolated | CPU-s, all | host GiB, extrapolated | host GiB, all |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in arguments.rows.split(","):
        row = ROWS[name]
        with tempfile.TemporaryDirectory() as folder:
            drawn = measured(row, "depths", Path(folder))
            whole = measured(row, "memory", Path(folder)) if drawn["layers_extrapolated"] else drawn
        lines.append(_line(row, drawn, whole))
        print(lines[-1], flush=True)
    table = "\n".join(lines)
    print(table)
    if arguments.write:
        write_table(arguments.write, "aot", table)


def _line(row: Row, drawn: dict[str, float], whole: dict[str, float]) -> str:
    extrapolated = bool(drawn["layers_extrapolated"])

    def both(measure: str, unit: float, digits: int) -> list[str]:
        few = f"{drawn[measure] / unit:.{digits}f}" if extrapolated else "-"
        return [few, f"{whole[measure] / unit:.{digits}f}"]

    peaks = both("hbm_peak", 2**30, 3)
    ratio = f"{drawn['hbm_peak'] / whole['hbm_peak']:.3f}" if extrapolated else "-"
    before = f"{row.before:.3f}" if row.before is not None else "-"
    cells = [
        f"{row.model.removeprefix('t5/')}, {row.program}, batch {row.batch}",
        row.slice,
        f"{row.layers or 'all'}",
        *peaks,
        before,
        ratio,
        *both("compile_cpu_seconds", 1, 0),
        *both("compile_host_memory", 2**30, 1),
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
