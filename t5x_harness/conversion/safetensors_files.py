"""Writes safetensors files of bounded size and reads them, one array at a time.

The library itself needs all arrays of a file in memory. Here, the header is written first, and each array is
written to its place once it is available.
"""

import dataclasses
import json
import math
import os
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from t5x_harness.conversion.request import ConversionError

Array = np.ndarray[Any, Any]

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

_CODES: Mapping[str, str] = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}
"""The names of element types in a header, by NumPy's names."""

_TYPES = {code: name for name, code in _CODES.items()}
_ALIGNMENT = 8
_LONGEST_HEADER = 100_000_000
_LONGEST_NAME = 255
_MOST_DIGITS = 18
_TOO_LARGE = 2**63
_HUB_SNAPSHOTS, _HUB_CONTENT = "snapshots", "blobs"
"""The folders of huggingface_hub's cache: links with the names of files, and the contents that they lead to."""


def dtype_named(name: str) -> np.dtype[Any]:
    """Returns an element type by its name, including bfloat16."""
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


@dataclasses.dataclass(frozen=True)
class Tensor:
    """An array of a file, without its data; ``dtype`` is the name of its element type."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def num_bytes(self) -> int:
        """The size of its data in bytes."""
        return math.prod(self.shape) * dtype_named(self.dtype).itemsize


@dataclasses.dataclass(frozen=True)
class _TensorPlace:
    file: Path
    offset: int
    tensor: Tensor

    def open(self, mode: str) -> Array:
        """Opens the data as an array, in one of the modes of ``numpy.memmap``."""
        dtype, shape = dtype_named(self.tensor.dtype), self.tensor.shape
        if not self.tensor.num_bytes:
            return np.zeros(shape, dtype)
        flat = np.memmap(self.file, dtype, mode, self.offset, (math.prod(shape),))  # type: ignore[call-overload]
        found: Array = flat.reshape(shape)
        return found


class ShardedWriter:
    """Files with space for all arrays, which are then written in any order.

    Args:
      folder: the folder for the files.
      tensors: all arrays, in their order in the files.
      metadata: the texts for the headers.
      shard_bytes: the maximum data in a file, in bytes; a larger array gets its own file.

    Raises:
      OSError: the disk is full.
    """

    def __init__(self, folder: Path, tensors: Sequence[Tensor], metadata: Mapping[str, str], shard_bytes: int) -> None:
        shards: list[list[Tensor]] = [[]]
        size = 0
        for tensor in tensors:
            if shards[-1] and size + tensor.num_bytes > shard_bytes:
                shards.append([])
                size = 0
            shards[-1].append(tensor)
            size += tensor.num_bytes
        self.files: list[Path] = []
        self._places: dict[str, _TensorPlace] = {}
        for number, shard in enumerate(shards, start=1):
            name = SINGLE if len(shards) == 1 else f"model-{number:05d}-of-{len(shards):05d}.safetensors"
            self._make(folder / name, shard, metadata)
        if len(shards) > 1:
            index = {
                "metadata": {"total_size": sum(tensor.num_bytes for tensor in tensors)},
                "weight_map": {name: self._places[name].file.name for name in sorted(self._places)},
            }
            (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")

    def _make(self, file: Path, shard: Sequence[Tensor], metadata: Mapping[str, str]) -> None:
        header: dict[str, Any] = {"__metadata__": dict(metadata)}
        offset = 0
        for tensor in shard:
            end = offset + tensor.num_bytes
            header[tensor.name] = {
                "dtype": _CODES[tensor.dtype],
                "shape": list(tensor.shape),
                "data_offsets": [offset, end],
            }
            offset = end
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % _ALIGNMENT)
        start = 8 + len(text)
        with file.open("xb") as stream:
            stream.write(struct.pack("<Q", len(text)) + text)
            stream.flush()
            if offset:
                os.posix_fallocate(stream.fileno(), start, offset)  # a full disk is now an error, not a signal later
        self.files.append(file)
        for tensor in shard:
            begin = header[tensor.name]["data_offsets"][0]
            self._places[tensor.name] = _TensorPlace(file, start + begin, tensor)

    def write(self, name: str, array: Array) -> None:
        """Writes an array to its place in the announced element type."""
        view = self._places[name].open("r+")
        view[...] = array
        if isinstance(view, np.memmap):
            view.flush()


class SafetensorsFolder:
    """The arrays of a folder that transformers or this harness wrote.

    Args:
      folder: a folder with ``model.safetensors``, or with an index and its files.

    Attributes:
      tensors: the arrays, by name.
      metadata: the texts of the headers.

    Raises:
      ConversionError: there is no file, or a file is damaged or is outside of the folder.
    """

    def __init__(self, folder: Path) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.metadata: dict[str, str] = {}
        self._places: dict[str, _TensorPlace] = {}
        for file in _files_in(folder):
            self._read_header(file)

    def _read_header(self, file: Path) -> None:
        try:
            with file.open("rb") as stream:
                (length,) = struct.unpack("<Q", stream.read(8))
                if length > min(_LONGEST_HEADER, file.stat().st_size):
                    raise ValueError(f"a header of {length} bytes")
                header = json_object(stream.read(length))
            metadata = header.pop("__metadata__", {})
            if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
                raise ValueError("__metadata__ is not made of texts")
            entries = [_entry(file, *item) for item in header.items()]
        except (struct.error, ValueError) as error:
            raise ConversionError(
                f"{file} is not a file of safetensors, or it is cut off: {error}. Copy it again"
            ) from None
        except OSError as error:
            raise ConversionError(f"{file} cannot be read: {error.strerror}") from None
        self.metadata |= metadata
        start = 8 + length
        size = file.stat().st_size - start
        for tensor, begin, end in entries:
            name = tensor.name
            if name in self._places:
                raise ConversionError(f"{name} is in {self._places[name].file} and in {file}: remove one of them")
            if not 0 <= begin <= end <= size or end - begin != tensor.num_bytes:
                raise ConversionError(
                    f"{file} is damaged: {name} should lie at bytes {begin} to {end} of {size}, and "
                    f"{list(tensor.shape)} of {tensor.dtype} are {tensor.num_bytes} bytes. Copy the file again"
                )
            self.tensors[name] = tensor
            self._places[name] = _TensorPlace(file, start + begin, tensor)

    def number(self, key: str) -> int | None:
        """Returns a number among the headers' texts, or None if it is missing or not a number."""
        text = self.metadata.get(key, "")
        return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else None

    def read(self, name: str) -> Array:
        """Returns an array whose data is read when it is used."""
        return self._places[name].open("r")


def _entry(file: Path, name: str, entry: Any) -> tuple[Tensor, int, int]:
    """Returns the array that an entry of a header describes, and its bytes.

    Raises:
      ConversionError: T5X does not have its element type.
      ValueError: the entry is invalid.
    """
    match entry:
        case {"dtype": str(code), "shape": list(shape), "data_offsets": [begin, end]} if all(
            type(number) is int and 0 <= number < _TOO_LARGE for number in (*shape, begin, end)
        ):
            if code in _TYPES:
                return Tensor(name, tuple(shape), _TYPES[code]), begin, end
            raise ConversionError(f"{file}: {name} is {code}, which T5X does not have; it has {', '.join(_TYPES)}")
    raise ValueError(f"{name} has no dtype, shape and data_offsets")


def json_object(text: str | bytes) -> dict[str, Any]:
    """Reads a JSON object from an untrusted source.

    Raises:
      ValueError: the text is not an object, contains a name twice, or is nested too deeply.
    """
    try:
        value = json.loads(text, object_pairs_hook=_without_repeats)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("not an object of JSON")
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        repeated = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise ValueError(f"{repeated} is there twice")
    return found


def _files_in(folder: Path) -> list[Path]:
    if (folder / SINGLE).is_file():
        return [_in_folder(folder, SINGLE)]
    if not (folder / INDEX).is_file():
        if (folder / "pytorch_model.bin").is_file():
            raise ConversionError(
                f"{folder} has its arrays in pytorch_model.bin, which can run code when it is read; load it with "
                "transformers and save it again with save_pretrained(…, safe_serialization=True)"
            )
        raise ConversionError(f"{folder} has neither {SINGLE} nor {INDEX}")
    try:
        weight_map = json_object((folder / INDEX).read_bytes())["weight_map"]
        names = sorted(set(weight_map.values()))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ConversionError(f"{folder / INDEX} is damaged: {type(error).__name__}: {error}") from None
    files = [_in_folder(folder, name) for name in names]
    missing = [name for name, file in zip(names, files, strict=True) if not file.is_file()]
    if missing:
        raise ConversionError(f"{folder} lacks {len(missing)} of {len(names)} files: {', '.join(missing[:5])}")
    return files


def _in_folder(folder: Path, name: Any) -> Path:
    """Returns a file of a folder by its name.

    Raises:
      ConversionError: the name, or a link with that name, leads out of the folder. Links in the cache of
        huggingface_hub may lead to its folder of contents.
    """
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\0" in name or len(name) > _LONGEST_NAME:
        raise ConversionError(
            f"{folder / INDEX} names {name!r}, which is not the name of a file in {folder}: nothing outside the folder "
            "is read. Use the index that was saved with these arrays"
        )
    file = folder / name
    target, allowed = file.resolve(), [folder.resolve()]
    if folder.resolve().parent.name == _HUB_SNAPSHOTS:
        allowed.append(folder.resolve().parent.parent / _HUB_CONTENT)
    if target.parent not in allowed:
        raise ConversionError(
            f"{file} is a link to {target}, outside of the folder, and is not read: copy the file into the folder"
        )
    return file
