"""The folder that a job is going to write into; T5X acts on what the folder already contains."""

import dataclasses
import os
from pathlib import Path

from t5x_harness.buckets.addresses import is_remote
from t5x_harness.buckets.emulated import store
from t5x_harness.gin.config import BindingKey, GinConfig
from t5x_harness.spec import Mode


@dataclasses.dataclass(frozen=True)
class JobOutputFolder:
    """The folder as the config's text names it.

    Attributes:
      key: the binding that holds it.
      path: the folder.
    """

    key: BindingKey
    path: str

    @property
    def local(self) -> Path | None:
        """The local folder to read: the folder itself, or its copy in a bucket that the user gave; None for others."""
        return Path(self.path) if not is_remote(self.path) else local_copy(self.path)

    def names(self) -> list[str]:
        """Returns the sorted names in the folder; empty if it does not exist or cannot be read here."""
        local = self.local
        return sorted(os.listdir(local)) if local is not None and local.is_dir() else []


def local_copy(path: str) -> Path | None:
    """Returns the path on disk for a path in a bucket if the user gave the bucket, else None."""
    here = store()
    return here.local(path) if here is not None and here.is_declared(path) else None


def output_folder(config: GinConfig) -> JobOutputFolder | None:
    """Returns the folder that the job writes into, or None if the config does not name it.

    It is taken from the config's text, because the parsed value is a folder of this run's own.
    """
    parameter = "model_dir" if config.mode is Mode.TRAIN else "output_dir"
    bound = config.program.final.get(("", config.entry, parameter))
    if bound is None:
        return None
    holder = config.program.resolve(bound)
    return JobOutputFolder(BindingKey(*holder.key), holder.value) if isinstance(holder.value, str) else None


def model_dir(config: GinConfig) -> JobOutputFolder | None:
    """Returns the folder that a training job writes into, or None for other jobs and if the config does not name it."""
    return output_folder(config) if config.mode is Mode.TRAIN else None


def inference_output(config: GinConfig, task: str) -> tuple[str, str]:
    """Returns the names of the files that the config's shard writes for a task: the finished and the temporary one."""

    def value(parameter: str) -> object:
        return config.value(config.owner_of(parameter))

    shard, shards = value("shard_id"), value("num_shards")
    shard = shard if isinstance(shard, int) else 0
    shards = shards if isinstance(shards, int) else 1
    part = f"{shard:05}-of-{shards:05}"
    extension = value("file_extension") or "jsonl"
    return f"{task}-{value('mode')}.{extension}-{part}.COMPLETED", f"tmp-{task}-{part}"


def unseen(config: GinConfig) -> list[str]:
    """Returns the unknowns about a folder in a bucket; empty for other folders and if old files do not matter."""
    folder = output_folder(config)
    if folder is None or folder.local is not None or config.mode is Mode.EVAL:
        return []
    left = "checkpoints" if config.mode is Mode.TRAIN else "finished or interrupted inference"
    return [f"whether {folder.path} holds {left} of an earlier job: it cannot be read here"]
