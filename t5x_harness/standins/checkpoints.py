"""Writes checkpoints in T5X's older layout: a msgpack file, and a zarr folder for each partitioned array.

T5X's own writer of this layout needs gcloud for a bucket. This one does not, and writes the same files: the file
``checkpoint`` holds the small arrays and, for each partitioned array, the tensorstore spec of its folder.
"""

import enum
import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import tensorstore as ts
from etils import epath
from flax import serialization, traverse_util

_VERSION = 3
"""T5X's number for this layout. T5X reads 2 and 3, which differ only in how bfloat16 is stored."""

_ANY_BUCKET = "t5x-dummy-bucket"
"""T5X writes this instead of the bucket's name, so that a checkpoint can be copied. Readers put in the real name."""


def write_legacy_checkpoint(
    folder: epath.PathLike, state: Mapping[str, Any], apart: Collection[str], *, in_bucket: bool = False
) -> None:
    """Writes a checkpoint; the file that makes the folder a checkpoint is written last.

    Args:
      folder: the checkpoint, such as ``gs://bucket/model/checkpoint_1000000`` or a local folder; it is made if needed.
      state: the arrays by name, such as ``target/encoder/encoder_norm/scale``; None, or flax's ``empty_node``, for a
        name without a value.
      apart: the names of the arrays that get their own folders: in T5X, all arrays with partition axes.
      in_bucket: whether to write specs as T5X writes them into a bucket, for a local folder that is seen as a bucket.
        At ``gs://``, they are always written in this way.
    """
    folder = epath.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    place = kvstore_of(folder)
    kvstore = {"driver": "gcs", "bucket": _ANY_BUCKET} if in_bucket or place["driver"] == "gcs" else {"driver": "file"}
    specs = {name: _spec(name, np.asarray(state[name]), kvstore) for name in state if name in apart}
    opening = {
        name: ts.open(spec | {"kvstore": _below(place, spec["kvstore"]["path"])}, create=True, delete_existing=True)
        for name, spec in specs.items()
    }
    writing = [store.result().write(np.asarray(state[name])) for name, store in opening.items()]
    for written in writing:
        written.result()
    tree = traverse_util.unflatten_dict({name: specs.get(name, state[name]) for name in state}, sep="/")
    content = serialization.msgpack_serialize({"version": _VERSION, "optimizer": tree})
    (folder / "checkpoint").write_bytes(content)


def _spec(name: str, array: np.ndarray[Any, Any], kvstore: Mapping[str, str]) -> dict[str, Any]:
    """Returns the tensorstore spec of an array, relative to the checkpoint's folder."""
    shape = list(array.shape)
    return {
        "driver": "zarr",
        "dtype": array.dtype.name,
        "kvstore": {**kvstore, "path": f"{name.replace('/', '.')}/"},
        "metadata": {"chunks": shape, "compressor": {"id": "gzip", "level": 1}, "shape": shape},
    }


def kvstore_of(folder: epath.Path) -> dict[str, str]:
    """Returns the tensorstore spec of a local folder or of one at ``gs://``."""
    address = str(folder)
    if address.startswith("gs://"):
        bucket, _, prefix = address.removeprefix("gs://").partition("/")
        return {"driver": "gcs", "bucket": bucket, "path": prefix}
    return {"driver": "file", "path": str(folder.resolve())}


def _below(place: Mapping[str, str], relative: str) -> dict[str, str]:
    return {**place, "path": f"{place['path'].rstrip('/')}/{relative}"}


_PUBLISHED = re.compile(r"(?:gs://|/gcs/)(?:t5-data/(?:t5-data/)?pretrained_models|scenic-bucket/ul2)/")


class CheckpointKind(enum.Enum):
    """The writer of a checkpoint, which decides its layout and the optimizer whose state it holds.

    ``ORBAX``: T5X by default, with the config's own optimizer.
    ``LEGACY``: T5X with ``use_orbax = False``, in its own older layout (msgpack and zarr).
    ``PUBLISHED``: the authors of a published model of the T5 family: the older layout, float32, Adafactor's state.
    """

    ORBAX = "orbax"
    LEGACY = "legacy"
    PUBLISHED = "published"


def kind_at(path: str, *, use_orbax: bool) -> CheckpointKind:
    """Returns the kind of the checkpoint that a config names.

    T5X has written orbax's layout since 27 February 2024 (google-research/t5x, 65ce7e9 "Launch Orbax Checkpointing by
    default in t5x"). All models that its docs/models.md lists in ``gs://t5-data/pretrained_models/t5x`` were listed by
    28 March 2023 (cf08499, umT5, whose config has a folder ``t5-data`` before that), and the UL2 models in
    ``gs://scenic-bucket/ul2`` date from 2022 and March 2023. Their optimizer is the Adafactor of T5's model gin files:
    in google-research/t5x issues 569 and 1196, users could not restore another optimizer from them.

    Args:
      path: the checkpoint, or the folder that contains it.
      use_orbax: the config's ``use_orbax``; a checkpoint at an unknown path counts as one from an earlier run.
    """
    if _PUBLISHED.match(path):
        return CheckpointKind.PUBLISHED
    return CheckpointKind.ORBAX if use_orbax else CheckpointKind.LEGACY
