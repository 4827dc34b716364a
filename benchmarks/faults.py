"""Ends a tiny training, and an inference, at every moment, in every way and on every storage, and says what happened.

    python benchmarks/faults.py [--moments save,infer] [--storages gs://] [--hosts 1,2] [--keep cells.json]
                                [--write docs/resume.md]

Each cell of the table is a fault that the stage resume brings to a process of a run; the process is started again and
compared with one that ran through. All faults of a storage and a number of hosts are compared with one reference. The
table has a row for each moment, storage, number of hosts, and place where the training goes on. A file of cells keeps
what was measured: a later call goes on with the others.
"""

import argparse
import dataclasses
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
SLICES = {1: "v3:1x1", 2: "v4-16", 4: "v4-32"}
"""The slice of each number of hosts."""

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


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
      storage: where the run writes.
      moment: the moment of the fault.
      hosts: the number of hosts.
      host: the number of the host that the fault comes to; None for all of them.
      on: where the training goes on, as a fault says it; empty for the same hosts.
    """

    storage: str
    moment: str
    hosts: int = 1
    host: int | None = None
    on: str = ""

    @property
    def group(self) -> tuple[str, int, bool]:
        """The rows with the same group share a reference."""
        return self.storage, self.hosts, self.moment in INFERRED

    def order(self, how: str) -> str:
        """Returns the text of a fault; a process that hangs is killed after a second."""
        step = f",at_step={STEPS.get(self.moment, 4)}" if self.moment in TRAINED else ""
        host = "" if self.host is None else f",host={self.host}"
        grace = ",grace=1" if how in ("stop", "gil") else ""
        return f"during={self.moment},how={how}{step}{host}{grace}{self.on and f',on={self.on}'}"

    def __str__(self) -> str:
        names = {None: "all", 0: "first", self.hosts - 1: "last"}
        hosts = "1" if self.hosts == 1 else f"{self.hosts}, {names[self.host]}"
        return f"| `{self.moment}` | {self.storage} | {hosts} | {GOES_ON[self.on]} |"


LOCAL, BUCKET = "local folder", "gs://"
GOES_ON = {"": "same", "v4-8": "one host", "2": "2 partitions", "v4-16": "2 hosts"}
"""Where a training goes on, in words."""

ROWS = (
    *itertools.starmap(Row, itertools.product(STORAGES, (*TRAINED, *INFERRED))),
    Row(LOCAL, "step", on="2"),
    Row(BUCKET, "save", on="2"),
    *(Row(LOCAL, "step", 2, host) for host in (0, 1)),
    Row(LOCAL, "save", 2, 0),
    Row(LOCAL, "save", 2, 0, "v4-8"),
    Row(BUCKET, "step", 2, 1),
    Row(LOCAL, "step", 4, 3),
    Row(LOCAL, "save", 4, 3, "v4-16"),
)

Cell = tuple[Row, str]
"""A row, and a way to end."""


def measure(cells: Sequence[Cell], keep: Callable[[Cell, str], None]) -> None:
    """Runs the config of a group of cells, brings it the fault of each, and passes on each result as it comes."""
    from t5x_harness.runs.pool import run_specs
    from t5x_harness.spec import Fault, Hosts, RunSpec

    storage, hosts, infers = cells[0][0].group
    faults = [Fault.from_text(row.order(how)) for row, how in cells]
    text = MODEL.format(mode="infer", run="infer", task="sample_classify") + INFER if infers else ""
    text = text or MODEL.format(mode="train", run="pretrain", task="sample_classify") + TRAIN
    text = text.replace("BATCH_SIZE = 8", f"BATCH_SIZE = {max(8, 4 * hosts)}")  # one example for each device
    if folder := STORAGES[storage]:
        text += f"{'INFER_OUTPUT_DIR' if infers else 'MODEL_DIR'} = '{folder}/out'\n"

    def progress(event: Mapping[str, Any]) -> None:
        if event.get("stage") == "resume" and "note" in event:
            keep(cells[event["step"] - 1], event["note"].partition(": ")[2])

    with tempfile.TemporaryDirectory() as name:
        file = Path(name, "infer.gin" if infers else "train.gin")
        file.write_text(text, encoding="utf-8")
        (Path(name) / "buckets" / "faults").mkdir(parents=True)
        spec = RunSpec((file.name,), search_paths=(str(ROOT / "sample_tasks/configs"),), slice=SLICES[hosts], cwd=name)
        spec = spec.with_settings(full_size=True, campaign=0, times=len(faults), gcs_root=f"{name}/buckets")
        spec = spec.with_settings(hosts=Hosts.ONE if hosts == 1 else Hosts.EMULATED)
        with mock.patch("t5x_harness.resume.campaign.draw", return_value=faults):
            (result,) = run_specs([spec], Path(name, "runs"), ahead=0, on_progress=lambda _: progress)
        for finding in {f for stage in result.stages for f in stage.errors}:
            print(finding.code, finding.message, finding.fix, flush=True)


def table(found: Mapping[Cell, str]) -> str:
    """Returns a Markdown table of what happened, with each row that was measured."""
    names = " | ".join(f"`{how}`" for how in WAYS)
    lines = [f"| moment | storage | hosts, which ends | goes on with | {names} |", "|---" * (4 + len(WAYS)) + "|"]
    measured = [row for row in ROWS if all((row, how) in found for how in WAYS)]
    lines += [f"{row} {' | '.join(found[row, how] for how in WAYS)} |" for row in measured]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", default=",".join((*TRAINED, *INFERRED)))
    parser.add_argument("--storages", default=",".join(STORAGES))
    parser.add_argument("--hosts", default=",".join(map(str, SLICES)))
    parser.add_argument("--keep", type=Path, help="JSON file with the cells that were measured")
    parser.add_argument("--write", type=Path, help="Markdown file whose table between the two markers is replaced")
    arguments = parser.parse_args()
    moments, storages = arguments.moments.split(","), arguments.storages.split(",")
    kept = json.loads(arguments.keep.read_text()) if arguments.keep and arguments.keep.exists() else []
    found: dict[Cell, str] = {(Row(**row), how): outcome for row, how, outcome in kept}

    def keep(cell: Cell, outcome: str) -> None:
        print(*cell, outcome, flush=True)
        found[cell] = outcome
        if arguments.keep:
            cells = [[dataclasses.asdict(row), how, outcome] for (row, how), outcome in found.items()]
            arguments.keep.write_text(json.dumps(cells, indent=0))

    wanted = [row for row in ROWS if row.moment in moments and row.storage in storages]
    wanted = [row for row in wanted if str(row.hosts) in arguments.hosts.split(",")]
    for group in dict.fromkeys(row.group for row in wanted):
        rows = [row for row in wanted if row.group == group]
        if cells := [cell for cell in itertools.product(rows, WAYS) if cell not in found]:
            measure(cells, keep)
    print(result := table(found))
    if arguments.write:
        write_table(arguments.write, "faults", result)


if __name__ == "__main__":
    main()
