"""One split of a task: writes its source's shards as parts and the parts as files for SeqIO, and compares examples.

A part is kept until the task is complete, so that the next run resumes a killed one after its last complete part. One
process at a time writes into a task's folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

from t5x_harness.buckets.folders import StorageError, folder_at
from t5x_harness.buckets.locks import Lock, locked
from t5x_harness.caching.request import CachedSplit, CacheError, CacheRequest
from t5x_harness.upstream.seqio import cached_source, preprocessors

COMPLETED = "COMPLETED"
"""The file that makes a folder a cache for SeqIO."""

STANDINS = "stand-ins.json"
"""The list of stand-ins in a cache of generated examples, which is useless for training."""

PARTS = ".parts"
"""The folder of finished parts, with which an interrupted run is resumed."""

_WRITER = ".writer.json"

_LARGEST_SEED = 2**63 - 1
_MODULUS = 2**128

Example = Mapping[str, Any]


@contextlib.contextmanager
def alone_in(folder: str) -> Iterator[Lock]:
    """Creates a folder, and keeps other processes from caching into it during the block.

    Raises:
      CacheError: another process is writing into the folder, or it cannot be created.
    """

    def refusal(who: str) -> CacheError:
        return CacheError(f"another process is caching into {folder}: {who}. Wait for it")

    try:
        with contextlib.ExitStack() as stack:
            try:
                lock = stack.enter_context(locked(folder_at(folder), _WRITER, refusal))
            except OSError as error:
                raise CacheError(f"{folder} cannot be written: {error.strerror or error}") from None
            yield lock
    except StorageError as error:
        raise CacheError(f"{folder} cannot be written: {error}") from None


def read_json(path: str) -> Any:
    """Returns the content of a JSON file, or None if it does not exist."""
    if not tf.io.gfile.exists(path):
        return None
    with tf.io.gfile.GFile(path) as file:
        return json.load(file)


def write_json(path: str, value: Any) -> None:
    """Writes a JSON file atomically."""
    with tf.io.gfile.GFile(f"{path}.new", "w") as file:
        file.write(json.dumps(value, sort_keys=True, indent=2) + "\n")
    tf.io.gfile.rename(f"{path}.new", path, overwrite=True)


def empty(folder: str) -> None:
    """Removes the files of this and older caches, but not the lock file."""
    names = tf.io.gfile.listdir(folder)
    for name in sorted(names, key=lambda name: name != COMPLETED):  # first the one that marks the rest as complete
        path = f"{folder}/{name.rstrip('/')}"
        if name.startswith(_WRITER):
            continue
        tf.io.gfile.rmtree(path) if tf.io.gfile.isdir(path) else tf.io.gfile.remove(path)


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


Progress = Callable[[str, str, str, int], None]
"""Called with a task, a split, the current step, and the number of examples so far."""


class SplitWriter:
    """Writes a split.

    Args:
      task: the task.
      split: the name of the split.
      folder: the task's folder in the cache.
      request: the request.
      progress: called for each example.
    """

    def __init__(self, task: seqio.Task, split: str, folder: str, request: CacheRequest, progress: Progress) -> None:
        self._task, self._split, self._folder, self._request = task, split, folder, request
        self._sources = list(task.source.list_shards(split))
        if not self._sources:
            raise CacheError(f"task {task.name} has no files of its split {split}")
        self._parts: list[dict[str, Any]] = []
        self._resumed = 0
        self._progress: Callable[[str, int], None] = functools.partial(progress, task.name, split)

    @property
    def _name(self) -> str:
        return f"{self._task.name} {self._split}"

    def write_parts(self) -> None:
        """Preprocesses each shard of the source into a part, unless the part already exists.

        Raises:
          CacheError: an example cannot be stored, or the split has none.
        """
        folder = f"{self._folder}/{PARTS}/{self._fingerprint_of_code()}"
        tf.io.gfile.makedirs(folder)
        for index in range(len(self._sources)):
            path = f"{folder}/{self._split}-{index:05d}-of-{len(self._sources):05d}"
            part = read_json(f"{path}.json")
            if part is None:
                part = self._write_part(index, path)
            else:
                self._resumed += 1
            self._parts.append(part)
        if not self._examples:
            raise CacheError(f"{self._name} has no examples: SeqIO cannot read a cache without any")

    @property
    def _examples(self) -> int:
        return sum(part["stats"]["examples"] for part in self._parts)

    def _fingerprint_of_code(self) -> str:
        """Returns a hash of the code, data and seed, which differs if parts of an earlier run do not fit this one."""
        digest = hashlib.blake2b(digest_size=8)
        functions = [inspect.unwrap(getattr(step, "func", step)) for step in preprocessors(self._task)]
        modules = {getattr(function, "__module__", None) for function in functions}
        files = {getattr(sys.modules.get(name or ""), "__file__", None) for name in modules}
        for file in sorted(filter(None, files)):
            digest.update(Path(file).read_bytes())
        digest.update(repr((self._request.base_seed, self._sources, sorted(map(str, files)))).encode())
        with contextlib.suppress(tf.errors.OpError, OSError):  # the source does not read files
            digest.update(repr([tf.io.gfile.stat(str(file)).length for file in self._sources]).encode())
        return digest.hexdigest()

    def _uncached(self, index: int) -> Iterator[Example]:
        """Yields the examples of a shard of the source after the preprocessors that precede the cache."""
        seed = shard_seed(self._task, index, self._request.base_seed)
        info = seqio.ShardInfo(index=index, num_shards=len(self._sources))
        dataset = self._task.source.get_dataset(split=self._split, shard_info=info, shuffle=False, seed=seed)
        return iter(self._task.preprocess_precache(dataset, seed=seed).prefetch(tf.data.AUTOTUNE))

    def _write_part(self, index: int, path: str) -> dict[str, Any]:
        fingerprint, statistics, features = Fingerprint(), Statistics(), None
        done = self._examples
        with tf.io.TFRecordWriter(f"{path}.tfrecord") as writer:
            for example in self._uncached(index):
                features = features or described(example)
                fingerprint.add(example)
                statistics.add(example, self._task.output_features)
                writer.write(self._stored(example))
                self._progress("written", done + fingerprint.examples)
        part = {"stats": statistics.counts, "sum": f"{fingerprint.total:x}", "features": features, "path": path}
        write_json(f"{path}.json", part)
        return part

    def _stored(self, example: Example) -> bytes:
        try:
            return bytes(seqio.dict_to_tfexample(example).SerializeToString())
        except (ValueError, TypeError) as error:
            kinds = ", ".join(f"{name} {getattr(v, 'dtype', type(v)).name}" for name, v in example.items())
            raise CacheError(f"{self._name}: an example cannot be stored ({kinds}): {error}") from None

    def write_shards(self) -> CachedSplit:
        """Spreads all parts over the split's files, and writes the other files that SeqIO's reader needs."""
        prefix = seqio.get_cached_tfrecord_prefix(self._folder, self._split)
        for file in tf.io.gfile.glob(f"{prefix}-*"):  # from a run with another number of files
            tf.io.gfile.remove(file)
        shards, statistics = max(len(self._sources), self._request.min_shards), Statistics()
        if self._request.max_shards:
            shards = min(shards, self._request.max_shards)
        name = f"{self._task.name} {self._split} {self._request.base_seed}"
        order = np.random.default_rng(list(hashlib.md5(name.encode()).digest()))
        with contextlib.ExitStack() as stack:
            paths = [f"{prefix}-{index:05d}-of-{shards:05d}" for index in range(shards)]
            writers = [stack.enter_context(tf.io.TFRecordWriter(path)) for path in paths]
            records: Any = tf.data.TFRecordDataset([f"{part['path']}.tfrecord" for part in self._parts])
            for number, record in enumerate(records):
                if number % shards == 0:  # the same number of examples in each file, and no neighbors in one file
                    places_of = order.permutation(shards)
                writers[places_of[number % shards]].write(record.numpy())
                self._progress("shuffled", number + 1)
        for part in self._parts:
            statistics.merge(part["stats"])
        features = next(part["features"] for part in self._parts if part["features"])
        info = {"num_shards": shards, "features": features, "seqio_version": seqio.__version__}
        write_json(seqio.get_cached_info_path(self._folder, self._split), info)
        write_json(seqio.get_cached_stats_path(self._folder, self._split), statistics.counts)
        return CachedSplit(self._split, shards, statistics.counts, self._resumed)

    def compare(self) -> None:
        """Compares the written examples with those of SeqIO's own reader, and with a second pass over the source.

        Raises:
          CacheError: the examples differ.
        """
        for index, part in enumerate(self._parts):
            again = Fingerprint()
            for number, example in enumerate(self._uncached(index)):
                again.add(example)
                self._progress("preprocessed again", number + 1)
            if again != _fingerprint(part):
                raise CacheError(
                    f"{self._name}: preprocessed twice, shard {index} of the source gives other examples"
                    f"{self._first_difference(index, part)}. Take random choices from seeds that SeqIO passes "
                    "(seqio.map_over_dataset(num_seeds=…)), or put them after the placeholder; --no-check writes the "
                    "cache as it comes"
                )
        written, read = Fingerprint(), Fingerprint()
        for part in self._parts:
            written.merge(_fingerprint(part))
        try:
            for example in cached_source(self._folder, self._split).get_dataset(self._split, shuffle=False):
                read.add(example)
                self._progress("read back", read.examples)
            refused: Exception | None = None
        except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:  # a wrong type or shape
            refused = error
        if refused or read != written:
            features = ", ".join(f"{name} {one['dtype']}" for name, one in self._parts[0]["features"].items())
            raise CacheError(
                f"{self._name}: SeqIO does not read out of the cache what was written ({written.examples} examples "
                f"with {features}): a cache holds integers, float32 and text, of which only the first size may vary; "
                "give the features such types before the placeholder"
            ) from refused

    def _first_difference(self, index: int, part: dict[str, Any]) -> str:
        """Describes the first difference between two passes."""
        before: Any = tf.data.TFRecordDataset(f"{part['path']}.tfrecord")
        for number, (record, example) in enumerate(zip(before, self._uncached(index), strict=False)):
            stored = seqio.tfexample_to_dict(tf.train.Example.FromString(record.numpy()))
            first = {
                name: tf.reshape(tf.cast(stored[name], value.dtype), value.shape)
                for name, value in example.items()
                if isinstance(value, tf.Tensor) and name in stored and tf.size(stored[name]) == tf.size(value)
            }
            if len(first) < len(example):
                return f": example {number} has features of other sizes"
            if difference := different_feature(first, {name: example[name] for name in first}):
                return f": of example {number}, {difference}"
        return ""


def _fingerprint(part: dict[str, Any]) -> Fingerprint:
    return Fingerprint(part["stats"]["examples"], int(part["sum"], 16))
