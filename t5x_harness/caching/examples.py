"""Examples of a task before and after caching, and fingerprints that compare them in any order."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

_LARGEST_SEED = 2**63 - 1
_MODULUS = 2**128

Example = Mapping[str, Any]


def shard_seed(task: seqio.Task, index: int, base_seed: int | None) -> int:
    """Returns the seed of random preprocessors for a shard of the source: the same seed as in SeqIO's own program."""
    base = 0
    if base_seed and base_seed != -1:
        base = base_seed + int.from_bytes(hashlib.md5(task.name.encode()).digest(), "little")
    digest = hashlib.md5(f"{task.name}shard{index}".encode()).digest()
    for length in (16, 7):
        seed = base + int.from_bytes(digest[:length], "little")
        if seed <= _LARGEST_SEED:
            break
    return seed % _LARGEST_SEED


def uncached(task: seqio.Task, split: str, index: int, shards: int, base_seed: int | None) -> tf.data.Dataset:
    """Returns a shard of a task's source after the preprocessors that precede the cache."""
    seed = shard_seed(task, index, base_seed)
    info = seqio.ShardInfo(index=index, num_shards=shards)
    dataset = task.source.get_dataset(split=split, shard_info=info, shuffle=False, seed=seed)
    return task.preprocess_precache(dataset, seed=seed).prefetch(tf.data.AUTOTUNE)


@dataclasses.dataclass
class Fingerprint:
    """The number of examples, and a sum over them that does not depend on their order."""

    examples: int = 0
    total: int = 0

    def add(self, example: Example) -> None:
        """Counts an example."""
        digest = hashlib.blake2b(digest_size=16)
        for name in sorted(example):
            for part in _parts(example[name]):
                array = np.asarray(part)
                digest.update(f"{name} {array.dtype} {array.shape} ".encode())
                digest.update(repr(array.tolist()).encode() if array.dtype.kind == "O" else array.tobytes())
        self.examples += 1
        self.total = (self.total + int.from_bytes(digest.digest(), "little")) % _MODULUS

    def merge(self, other: Fingerprint) -> None:
        """Adds the examples of another fingerprint."""
        self.examples += other.examples
        self.total = (self.total + other.total) % _MODULUS

    @classmethod
    def of(cls, examples: Iterable[Example]) -> Fingerprint:
        """Returns the fingerprint of all examples."""
        made = cls()
        for example in examples:
            made.add(example)
        return made


def _parts(value: Any) -> Sequence[Any]:
    if isinstance(value, tf.RaggedTensor):
        return [value.flat_values.numpy(), *(lengths.numpy() for lengths in value.nested_row_lengths())]
    array = value.numpy() if isinstance(value, tf.Tensor) else value
    return [np.array(array, object) if isinstance(array, bytes) else array]  # otherwise trailing zeros would be lost


def different_feature(one: Example, other: Example) -> str | None:
    """Returns a description of the first feature in which two examples differ, or None if they are equal."""
    for name in sorted({*one, *other}):
        if name not in one or name not in other:
            return f"feature {name} is in one of them only"
        if Fingerprint.of([{name: one[name]}]) != Fingerprint.of([{name: other[name]}]):
            return f"feature {name} is {_short(one[name])} and {_short(other[name])}"
    return None


def _short(value: Any) -> str:
    array = np.asarray(_parts(value)[0])
    text = str(array.tolist())
    return f"{array.dtype} {text if len(text) <= 60 else text[:60] + '…'}"


class Statistics:
    """SeqIO's statistics of a split: its examples, and each feature's tokens without padding and end of sequence."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {"examples": 0}

    def add(self, example: Example, features: Mapping[str, seqio.Feature]) -> None:
        """Counts an example."""
        counts = {"examples": 1}
        for name, feature in features.items():
            ids = example.get(name)
            if not isinstance(ids, tf.Tensor) or ids.dtype not in (tf.int32, tf.int64):
                continue
            values = ids.numpy()
            special = [feature.vocabulary.eos_id, feature.vocabulary.pad_id]
            tokens = int(np.sum(~np.isin(values, [one for one in special if one is not None])))
            counts |= {f"{name}_tokens": tokens, f"{name}_max_tokens": tokens}
        self.merge(counts)

    def merge(self, counts: Mapping[str, int]) -> None:
        """Adds the examples of other statistics."""
        for name, number in counts.items():
            before = self.counts.get(name, 0)
            self.counts[name] = max(before, number) if name.endswith("_max_tokens") else before + number


def described(example: Example) -> dict[str, Any]:
    """Returns the features of an example as in ``info.<split>.json``, in which only the first dimension is open."""
    shapes = {name: value.shape.as_list() for name, value in example.items()}
    return {
        name: {"shape": [None, *shape[1:]] if shape else [], "dtype": example[name].dtype.name}
        for name, shape in shapes.items()
    }
