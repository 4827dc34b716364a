"""The folder that a run writes into: chosen and cleared before the run, and read back after it."""

import contextlib
import dataclasses
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from t5x_harness.buckets.addresses import is_remote
from t5x_harness.buckets.emulated import store
from t5x_harness.gin.config import BindingKey, GinConfig
from t5x_harness.plan.checkpoint_source import UNSET_CHECKPOINT, checkpoint_steps
from t5x_harness.spec import Change, Checkpoint, Mode, Reason, StandInPolicy
from t5x_harness.vertex.metrics import scalars_of

_CHECKPOINT = "checkpoint_*"
_OF_A_JOB = (
    _CHECKPOINT, "train_ds*", "train", "training_eval", "inference_eval", "events.out.tfevents*", "config.gin",
    "model-info.txt", "*.jsonl*", "tmp-*",
)  # fmt: skip
"""The names that T5X's jobs write into their folder, and later continue from or append to."""


@dataclasses.dataclass(frozen=True)
class RunOutput:
    """The folder that a run writes into.

    Attributes:
      address: the folder's path or URL, as passed to T5X.
      local: the same folder on this machine's disk, where the harness reads it.
      is_in_bucket: whether it is in a bucket of the emulated Google Cloud.
    """

    address: str
    local: Path
    is_in_bucket: bool = False


def output_folder(config: GinConfig, asked: str | None, workspace: Path) -> RunOutput:
    """Returns the folder that a run writes into.

    It is the requested one, else the config's own if that is in an emulated bucket, else the run's own.

    Args:
      config: the parsed config.
      asked: ``--model_dir``, a local folder; None to leave it open.
      workspace: the run's folder.
    """
    path = Path(asked).absolute() if asked is not None else workspace / "model"
    here, given = store(), config.value(output_key(config))
    if asked is None and here is not None and isinstance(given, str) and (local := here.local(given)) is not None:
        return RunOutput(given, local, is_in_bucket=True)
    return RunOutput(str(path), path)


def not_written_to(config: GinConfig, folder: RunOutput) -> str | None:
    """Describes what is left unchecked if a run does not write into the config's bucket; returns None if it does."""
    given = config.program.final.get(("", config.entry, _parameter(config)))
    value = config.program.resolve(given).value if given is not None else None
    if not isinstance(value, str) or not is_remote(value) or folder.address == value:
        return None
    with_extra = "" if store() is not None else ": an emulated bucket for it needs the extra google of t5x-harness"
    return f"writing to {value}{with_extra}"


def empty(folder: RunOutput, restored: Iterable[str] = ()) -> None:
    """Makes a folder in a bucket, or clears it of an earlier job's files, because a run here starts from scratch.

    Args:
      folder: the run's folder.
      restored: the checkpoints that its config names, or folders of checkpoints. They remain, even in this folder.
    """
    if not folder.is_in_bucket:
        return
    here = store()
    assert here is not None
    kept = [local for path in restored if (local := here.local(path)) is not None]
    folder.local.mkdir(parents=True, exist_ok=True)
    for path in [path for pattern in _OF_A_JOB for path in folder.local.glob(pattern)]:
        if path.match(_CHECKPOINT) and any(path.is_relative_to(each) or each.is_relative_to(path) for each in kept):
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def sandbox(config: GinConfig, model_dir: str, workspace: Path, policy: StandInPolicy) -> list[Change]:
    """Binds the output folder, and sets the required paths.

    Args:
      config: the parsed config.
      model_dir: the folder that the run writes into, as passed to T5X.
      workspace: the run's folder.
      policy: whether stand-ins are generated; if not, paths remain without a value.

    Returns:
      The changes; ``%gin.REQUIRED`` stands for a path without a value.
    """
    changes = []
    output = output_key(config)
    if config.value(output) != model_dir:
        left_open = not config.is_bound(output) or config.is_required(config.value(output))
        before = repr(config.value(output)) if config.is_bound(output) else "nothing"
        config.bind(output, model_dir)
        why = Reason.GIVEN if left_open else Reason.SANDBOX
        changes.append(Change(output.short, before, repr(model_dir), why))
    path = config.restore_key("path")
    owner = config.owner(path) if path else None
    if policy is not StandInPolicy.OFF and owner and config.is_required(config.value(owner)):
        value = str(workspace / "standin" / UNSET_CHECKPOINT)
        changes.append(Change(owner.short, repr(config.value(owner)), repr(value), Reason.STANDIN))
        config.bind(owner, value)
    return changes


def output_key(config: GinConfig) -> BindingKey:
    """Returns the binding that holds the folder that a run writes into."""
    return config.owner_of(_parameter(config))


def _parameter(config: GinConfig) -> str:
    return "model_dir" if config.mode is Mode.TRAIN else "output_dir"


def scalars_in(folder: Path, prefix: str = "") -> dict[str, dict[int, float]]:
    """Returns every scalar below a folder, by TensorBoard folder and tag, then step.

    Args:
      folder: the folder, such as a run's model_dir.
      prefix: a prefix for the names, such as ``eval/``.
    """
    found: dict[str, dict[int, float]] = {}
    for file in sorted(folder.rglob("events.out.tfevents*")):
        where = file.parent.relative_to(folder).as_posix()
        name = prefix + (f"{where}/" if where != "." else "")
        for tag, step, value in scalars_of(file.read_bytes()):
            found.setdefault(f"{name}{tag}", {})[step] = value
    return found


def checkpoints_in(model_dir: Path) -> list[Checkpoint]:
    """Returns the checkpoints of a run, by step."""
    found = []
    for step in checkpoint_steps(str(model_dir)):
        path = model_dir / f"checkpoint_{step}"
        size = sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
        found.append(Checkpoint(step, str(path), size))
    return found


def json_lines(folder: Path) -> list[dict[str, Any]]:
    """Returns the objects in every JSON lines file below a folder, except metrics and markers.

    Text that is not JSON, such as the lines of a custom ``write_fn``, is left out.
    """
    found = []
    for file in sorted(folder.rglob("*.jsonl*")):
        if file.is_file() and "-metrics." not in file.name and not file.name.endswith(".COMPLETED"):
            for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
                with contextlib.suppress(ValueError):
                    found.append(json.loads(line))
    return [each for each in found if isinstance(each, dict)]
