"""Ends a tiny training, and an inference, at every moment, in every way and on every storage, and says what happened.

    python benchmarks/faults.py [--moments save,infer] [--storages gs://] [--keep cells.json] [--write docs/resume.md]

Each cell of the table is a fault that the stage resume brings to a process of a run; the process is started again and
compared with one that ran through. All faults of a storage are compared with one reference. The table has a row for
each moment, storage and number of hosts. A file of cells keeps what was measured: a later call goes on with the others.
"""

import argparse
import itertools
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from reporting import write_table

ROOT = Path(__file__).resolve().parent.parent
STORAGES = {"local folder": "", "/gcs": "/gcs/faults", "gs://": "gs://faults"}
TRAINED = ("step", "save", "commit", "eval", "restore", "compile")
INFERRED = ("infer",)
WAYS = ("kill", "term", "stop", "gil")
HOSTS = (1,)
STEPS = {"step": 5}
"""The steps at which moments come that would otherwise lose nothing."""

MODEL = """
from __gin__ import dynamic_registration
import __main__ as {mode}_script
from t5x import utils
from t5x.examples.t5 import network
import t5x_harness.sample_tasks.tasks
include 'models/tiny_bytes.gin'
include 't5x/configs/runs/{run}.gin'
MIXTURE_OR_TASK_NAME = '{task}'
TASK_FEATURE_LENGTHS = {{'inputs': 64, 'targets': 16}}
DROPOUT_RATE = 0.1
network.T5Config.emb_dim = 16
network.T5Config.mlp_dim = 32
network.T5Config.num_heads = 2
network.T5Config.head_dim = 4
network.T5Config.num_encoder_layers = 1
network.T5Config.num_decoder_layers = 1
"""
TRAIN = """
TRAIN_STEPS = 6
USE_CACHED_TASKS = False
BATCH_SIZE = 8
RANDOM_SEED = 0
train/utils.DatasetConfig.seed = 0
train/utils.DatasetConfig.pack = False
train_eval/utils.DatasetConfig.pack = False
train_script.train.eval_period = 2
train_script.train.eval_steps = 2
train_script.train.stats_period = 1
utils.SaveCheckpointConfig.period = 2
utils.SaveCheckpointConfig.save_dataset = True
"""
INFER = """
utils.DatasetConfig.split = 'validation'
utils.DatasetConfig.batch_size = 4
CHECKPOINT_PATH = 'gs://nowhere/model/checkpoint_1234'
"""

Cell = tuple[str, str, str]
"""A storage, a moment and a way."""


def measure(storage: str, cells: Sequence[Cell], *, infers: bool, keep: Callable[[Cell, str], None]) -> None:
    """Runs a config on a storage, brings it the fault of each cell, and passes on the result of each as it comes."""
    from t5x_harness.runs.pool import run_specs
    from t5x_harness.spec import Fault, RunSpec

    faults = [Fault.from_text(order(moment, how)) for _, moment, how in cells]
    text = MODEL.format(mode="infer", run="infer", task="sample_classify") + INFER if infers else ""
    text = text or MODEL.format(mode="train", run="pretrain", task="sample_classify") + TRAIN
    if folder := STORAGES[storage]:
        text += f"{'INFER_OUTPUT_DIR' if infers else 'MODEL_DIR'} = '{folder}/out'\n"

    def progress(event: Mapping[str, Any]) -> None:
        if event.get("stage") == "resume" and "note" in event:
            keep(cells[event["step"] - 1], event["note"].partition(": ")[2])

    with tempfile.TemporaryDirectory() as name:
        file = Path(name, "infer.gin" if infers else "train.gin")
        file.write_text(text, encoding="utf-8")
        (Path(name) / "buckets" / "faults").mkdir(parents=True)
        spec = RunSpec((file.name,), search_paths=(str(ROOT / "sample_tasks/configs"),), slice="v3:1x1", cwd=name)
        spec = spec.with_settings(full_size=True, campaign=0, times=len(faults), gcs_root=f"{name}/buckets")
        with mock.patch("t5x_harness.resume.campaign.draw", return_value=faults):
            (result,) = run_specs([spec], Path(name, "runs"), ahead=0, on_progress=lambda _: progress)
        for finding in {f for stage in result.stages for f in stage.errors}:
            print(finding.code, finding.message, finding.fix, flush=True)


def order(moment: str, how: str) -> str:
    """Returns the text of a fault; a process that hangs is killed after a second."""
    step = f",at_step={STEPS.get(moment, 4)}" if moment in TRAINED else ""
    return f"during={moment},how={how}{step}{',grace=1' if how in ('stop', 'gil') else ''}"


def table(found: Mapping[Cell, str], moments: Sequence[str], storages: Sequence[str]) -> str:
    """Returns a Markdown table of what happened, with a row for each moment and storage that was measured."""
    lines = [f"| moment | storage | hosts | {' | '.join(f'`{how}`' for how in WAYS)} |", "|---" * (3 + len(WAYS)) + "|"]
    for moment, storage, hosts in itertools.product(moments, storages, HOSTS):
        if all((storage, moment, how) in found for how in WAYS):
            cells = " | ".join(found[storage, moment, how] for how in WAYS)
            lines.append(f"| `{moment}` | {storage} | {hosts} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", default=",".join((*TRAINED, *INFERRED)))
    parser.add_argument("--storages", default=",".join(STORAGES))
    parser.add_argument("--keep", type=Path, help="JSON file with the cells that were measured")
    parser.add_argument("--write", type=Path, help="Markdown file whose table between the two markers is replaced")
    arguments = parser.parse_args()
    moments, storages = arguments.moments.split(","), arguments.storages.split(",")
    kept = json.loads(arguments.keep.read_text()) if arguments.keep and arguments.keep.exists() else []
    found: dict[Cell, str] = {(storage, moment, how): outcome for storage, moment, how, outcome in kept}

    def keep(cell: Cell, outcome: str) -> None:
        print(*cell, outcome, sep=" | ", flush=True)
        found[cell] = outcome
        if arguments.keep:
            arguments.keep.write_text(json.dumps([[*each, result] for each, result in found.items()], indent=0))

    for storage, of_kind in itertools.product(storages, (TRAINED, INFERRED)):
        wanted = itertools.product([storage], [moment for moment in moments if moment in of_kind], WAYS)
        if cells := [cell for cell in wanted if cell not in found]:
            measure(storage, cells, infers=of_kind is INFERRED, keep=keep)
    print(result := table(found, moments, storages))
    if arguments.write:
        write_table(arguments.write, "faults", result)


if __name__ == "__main__":
    main()
