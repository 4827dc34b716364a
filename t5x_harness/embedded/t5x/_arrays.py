"""The arrays of T5X's own checkpoint layout: one zarr folder each, named by their path in the state."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tensorstore as ts
from jax.sharding import NamedSharding

_CHUNK_BYTES = 64 * 1024 * 1024
_CONTEXT = ts.Context({"file_io_concurrency": {"limit": 128}})

# Written instead of the bucket's name, so that a checkpoint can be moved to another bucket.
_ANY_BUCKET = "t5x-dummy-bucket"

# What T5X writes, inside Google (gfile) and outside; it refuses others.
_DRIVERS = ("file", "gfile", "gcs")


def new_spec(folder: str, name: str, shape: Sequence[int], dtype: Any, write_shape: Sequence[int]) -> ts.Spec:
    """Describes an array to be written; of ``folder``, it only matters whether it is in a bucket.

    ``write_shape`` is the shape of the part that one process writes; chunks do not cross its bounds.
    """
    kvstore = {"driver": "file", "path": name.replace("/", ".")}
    if _bucket_and_prefix(folder) is not None:
        kvstore |= {"driver": "gcs", "bucket": _ANY_BUCKET}
    return ts.Spec(
        {
            "driver": "zarr",
            "dtype": jnp.dtype(dtype).name,
            "kvstore": kvstore,
            "metadata": {
                "shape": list(shape),
                "chunks": _chunk_shape(write_shape, _CHUNK_BYTES // jnp.dtype(dtype).itemsize),
                "compressor": {"id": "gzip"},
            },
        }
    )


def write_array(ckpt_dir: str, spec: ts.Spec, array: Any) -> tuple[list[Any], int]:
    """Begins to write this process' part of an array, cast to the dtype of its spec.

    Every process holds all of a NumPy array. Returns futures, and the bytes that they keep in memory.
    """
    stored = spec.to_json()
    store = ts.open(_located(ckpt_dir, stored), create=True, open=True, context=_CONTEXT).result()
    dtype = jnp.dtype(stored["dtype"])
    if isinstance(array, jax.Array):
        parts = [(shard.index, shard.data) for shard in array.addressable_shards if shard.replica_id == 0]
    else:
        parts = [(..., array)] if jax.process_index() == 0 else []
    values = [(index, np.asarray(data).astype(dtype)) for index, data in parts]
    return [store[index].write(value) for index, value in values], sum(value.nbytes for _, value in values)


def read_array(
    ckpt_dir: str, stored: Mapping[str, Any], name: str, dtype: Any = None, sharding: NamedSharding | None = None
) -> Any:
    """Reads an array by the JSON of its spec; with ``sharding`` only this process' parts, straight to its devices.

    Raises:
        ValueError: the array is missing, damaged, or stored in a way that is no longer read.
    """
    if "uint16" in (stored.get("dtype"), stored_dtype(stored)):
        raise ValueError(
            f"{name} in checkpoint {ckpt_dir} holds bfloat16 as uint16, as T5X wrote it long ago and no longer reads; "
            "rewrite it as bfloat16"
        )
    try:
        # The array's own metadata decides: a copy of a checkpoint may be chunked or compressed differently.
        located = _located(ckpt_dir, {key: value for key, value in stored.items() if key != "metadata"})
        store = ts.open(located, context=_CONTEXT).result()
        if dtype is not None:
            store = ts.cast(store, jnp.dtype(dtype).name)
        if sharding is None:
            return store.read().result()
        shape = tuple(store.shape)
        return jax.make_array_from_callback(shape, sharding, lambda index: store[index].read().result())
    except ValueError as error:
        raise ValueError(f"Cannot read {name} of checkpoint {ckpt_dir}: {error}") from error


def stored_shape(stored: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(stored["metadata"]["shape"])


def stored_dtype(stored: Mapping[str, Any]) -> str:
    if "dtype" in stored:
        return str(stored["dtype"])
    return str(np.dtype(stored["metadata"]["dtype"]))


def _located(ckpt_dir: str, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Puts the checkpoint's location into a spec, whatever storage it was written to."""
    if stored["kvstore"]["driver"] not in _DRIVERS:
        raise ValueError(f"the stored spec is of another storage than files and gs://: {dict(stored)}")
    relative = stored["kvstore"].get("path") or stored.get("path")
    if not relative:
        raise ValueError(f"the stored spec names no path: {dict(stored)}")
    place = _bucket_and_prefix(ckpt_dir)
    if place is None:
        kvstore = {"driver": "file", "path": os.path.join(ckpt_dir, relative)}
    else:
        kvstore = {"driver": "gcs", "bucket": place[0], "path": os.path.join(place[1], relative)}
    located = {key: value for key, value in stored.items() if key not in ("path", "kvstore")}
    return located | {"kvstore": kvstore}


def _bucket_and_prefix(folder: str) -> tuple[str, str] | None:
    if not os.fspath(folder).startswith("gs://"):
        return None
    bucket, _, prefix = os.fspath(folder).removeprefix("gs://").partition("/")
    return bucket, prefix


def _chunk_shape(shape: Sequence[int], max_elements: int) -> list[int]:
    """Divides the longest dimension by its smallest factor until a chunk is small enough."""
    chunk = list(shape)
    while math.prod(chunk) > max(max_elements, 1):
        longest = chunk.index(max(chunk))
        factor = next(n for n in range(2, chunk[longest] + 1) if chunk[longest] % n == 0)
        chunk[longest] //= factor
    return chunk
