"""Runs a conversion: opens its source, checks it, writes the output, and moves the complete output into place.

Two conversions cannot write into one place at the same time, and each removes the leftovers of a killed one.
"""

import contextlib
import dataclasses
import functools
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from etils import epath

from t5x_harness.buckets.addresses import GS, bucket_of
from t5x_harness.buckets.emulated import local_path
from t5x_harness.buckets.folders import COMMITTED, StorageError, folder_at
from t5x_harness.buckets.locks import Lock, locked
from t5x_harness.conversion.architecture import Architecture, architecture_of, parameters, require_same
from t5x_harness.conversion.checking import compare, require_libraries
from t5x_harness.conversion.flavors import BYTES, ModelSettings, Vocabulary, flavor_of, settings_of
from t5x_harness.conversion.request import Conversion, ConversionError, ConversionRequest, Form, first_line
from t5x_harness.conversion.safetensors_files import SafetensorsFolder, ShardedWriter, dtype_named
from t5x_harness.conversion.stored import LazyArray, StoredParameters, read_t5x, write_checkpoint
from t5x_harness.conversion.transformers_folder import (
    CONFIG,
    STEP,
    read_transformers,
    write_tokenizer,
    write_transformers,
)

_ASIDE = ".t5x-harness-convert"
_LOCK = f"{_ASIDE}.json"
_LAST = ("config.json", COMMITTED)


@contextlib.contextmanager
def written_whole(place: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields an empty folder that becomes ``place`` at the end; if the block raises, nothing is left.

    Args:
      place: a folder that does not exist or is empty, or an address such as ``gs://bucket/hf``, to which the content of
        the folder is copied; the files that make it complete for readers are copied last.

    Raises:
      ConversionError: the place is not empty, another conversion is writing it, or it cannot be created.
    """
    path = os.fspath(place)
    with _copied_to(path.rstrip("/")) if "://" in path else _moved_to(Path(path)) as folder:
        yield folder


@contextlib.contextmanager
def _copied_to(address: str) -> Iterator[Path]:
    place = epath.Path(address)
    with tempfile.TemporaryDirectory(prefix="t5x-harness-convert-") as scratch:
        try:
            _require_empty(place)
            with _alone_at(address) as lock:
                yield Path(scratch)
                _require_empty(place)
                files = (path for path in Path(scratch).rglob("*") if path.is_file())
                for path in sorted(files, key=lambda path: (path.name in _LAST, path)):
                    lock.renew()
                    epath.Path(path).copy(place / str(path.relative_to(scratch)))
        except ConversionError:
            raise
        except Exception as error:  # from the library for this kind of address
            raise ConversionError(f"{address} cannot be written: {first_line(error)}") from error


@contextlib.contextmanager
def _moved_to(place: Path) -> Iterator[Path]:
    _require_free(place)
    aside = place.parent / f".{place.name}{_ASIDE}"
    try:
        with _alone_at(str(place)) as lock:
            shutil.rmtree(aside, ignore_errors=True)  # left by a killed conversion
            aside.mkdir(parents=True)
            try:
                yield aside
                lock.renew()
                _require_free(place)
                aside.rename(place)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
    except StorageError as error:
        raise ConversionError(f"{place} cannot be written: {error}") from None
    except OSError as error:
        raise ConversionError(f"{place} cannot be written: {error.strerror or error}") from error


@contextlib.contextmanager
def _alone_at(place: str) -> Iterator[Lock]:
    """Locks a place with a file next to it, because T5X removes uncommitted checkpoint folders."""

    def refusal(who: str) -> ConversionError:
        return ConversionError(f"another conversion is writing {place}: {who}. Wait for it, or name another folder")

    parent, name = os.path.split(place)
    folder = parent if place != f"{GS}{bucket_of(place)}" else place
    with locked(folder_at(folder), f".{name}{_LOCK}", refusal) as lock:
        yield lock


def _require_empty(place: epath.Path | Path) -> None:
    found = (path.name for path in place.iterdir()) if place.is_dir() else ()
    if names := sorted(name for name in found if not name.endswith(_LOCK))[:4]:
        raise ConversionError(f"{place} holds {', '.join(names)} already: name a folder that is not there")


def _require_free(place: Path) -> None:
    _require_empty(place)
    for path in (place, *place.parents):
        if path.exists() and not path.is_dir():
            raise ConversionError(f"{path} is a file: name a folder that is not there")


_NAMES = "t5x_names"
_OWN_CONFIG = "config.gin"
_LAST_STEP = 2**31 - 1


def convert(request: ConversionRequest) -> Conversion:
    """Converts a checkpoint.

    Raises:
      ConversionError: the checkpoint cannot be read or does not fit, or the output cannot be written. No output is
        left.
    """
    if request.check:
        require_libraries()
    opened, sizes = _opened(request)
    source = opened.as_type(request.dtype)
    output = request.output
    if "://" not in output:
        output = str(local_path(output) or os.path.abspath(output))  # orbax needs an absolute path
    if request.to is Form.TRANSFORMERS:
        if source.layout == "transformers":
            raise ConversionError(f"{source.where} is a folder of transformers already: --to t5x, or --to safetensors")
        return _to_transformers(request, source, output)
    if request.to is Form.SAFETENSORS:
        with written_whole(output) as folder:
            files = _write_safetensors(folder, source, request)
    else:
        step = source.step if request.step is None else request.step
        if step is None:
            raise ConversionError(
                f"{source.where} says no train step, and the checkpoint's folder is named by it: give one, as "
                "--step=1000000"
            )
        if not 0 <= step <= _LAST_STEP:
            raise ConversionError(f"{source.where}: T5X keeps its train step in 32 bits, and {step} is not such a step")
        source = dataclasses.replace(source, step=step)
        output = os.path.join(output, f"checkpoint_{step}")
        with written_whole(output) as folder:
            lazy = {
                name: LazyArray(each.shape, dtype_named(each.dtype), functools.partial(source.read, name))
                for name, each in source.tensors.items()
            }
            made = write_checkpoint(folder, step, lazy)
            for child in list(made.iterdir()):
                child.rename(folder / child.name)
            made.rmdir()
            for part in (folder, *(path for path in folder.iterdir() if path.is_dir())):
                (part / COMMITTED).touch()  # so that a copy at gs:// is also complete
            files = sorted(path for path in folder.iterdir() if path.is_file())
    return _report(request, source, str(sizes or ""), output, files)


def _opened(request: ConversionRequest) -> tuple[StoredParameters, Architecture | None]:
    """Returns the parameters of the checkpoint that the user names, and the sizes if it is a transformers model."""
    path = request.checkpoint.rstrip("/") or "/"
    local = local_path(path)
    path = str(local) if local is not None and local.exists() else path
    folder = Path(path)
    if (folder / CONFIG).is_file():
        return read_transformers(folder, request.scanned)
    if any(folder.glob("*.safetensors")):
        return _read_safetensors(folder), None
    return read_t5x(path), None


def _to_transformers(request: ConversionRequest, source: StoredParameters, output: str) -> Conversion:
    own = os.path.join(os.path.dirname(source.where), _OWN_CONFIG)
    config = request.gin_files or ((own,) if os.path.isfile(own) else ())
    settings = _settings(request, config)
    sizes = architecture_of(source.shapes, source.where)
    require_same(
        f"{source.where}: its arrays are not those of a T5 of its sizes ({sizes})",
        source.shapes,
        [(parameter.name, parameter.shape) for parameter in parameters(sizes)],
        "convert a checkpoint of one of T5X's own networks; the arrays of any can be written under their own names: "
        "--to safetensors",
    )
    _require_sizes(source, sizes, settings)
    flavor = flavor_of(sizes, settings, request.model_type)
    with written_whole(output) as folder:
        files = write_transformers(folder, source, sizes, flavor, settings, request.shard_bytes)
        tokenizer = write_tokenizer(folder, sizes, flavor, settings, required=request.vocabulary is not None)
        files += tokenizer.files
        agreement = compare(source, sizes, flavor, folder) if request.check else None
        if agreement is not None and not agreement.holds:
            raise ConversionError(
                f"{source.where}: the converted model does not compute what T5X's network does: {agreement}. Nothing "
                "was written; please report it with the versions of T5X and transformers"
                + "".join(f".\nA note on this model: {warning}" for warning in flavor.warnings)
            )
    conversion = _report(request, source, str(sizes), output, files)
    return dataclasses.replace(
        conversion,
        model_type=str(flavor.model_type),
        config=config,
        left_out=(*conversion.left_out, *tokenizer.left_out),
        assumptions=flavor.assumptions,
        warnings=(*flavor.warnings, *tokenizer.warnings),
        agreement=agreement,
    )


def _settings(request: ConversionRequest, files: tuple[str, ...]) -> ModelSettings:
    settings = (
        settings_of(files, request.bindings, request.search_paths) if files or request.bindings else ModelSettings()
    )
    if request.vocabulary is None:
        return settings
    path = None if request.vocabulary == BYTES else request.vocabulary
    return dataclasses.replace(settings, vocabulary=Vocabulary(path, request.extra_ids), doubt="")


def _require_sizes(source: StoredParameters, sizes: Architecture, settings: ModelSettings) -> None:
    """Raises ConversionError if the config is for another model."""
    different = [
        f"{name} is {getattr(sizes, name)} in the checkpoint and {value} in the config"
        for name, value in settings.sizes
        if getattr(sizes, name) != value
    ]
    if different:
        raise ConversionError(
            f"{source.where} is not of the config's model: {'; '.join(different)}. Name the config of its own run"
        )


def _write_safetensors(folder: Path, source: StoredParameters, request: ConversionRequest) -> list[Path]:
    """Writes the parameters under T5X's own names."""
    tensors = sorted(source.tensors.values(), key=lambda tensor: tensor.name)
    metadata = {_NAMES: "1", **({STEP: str(source.step)} if source.step is not None else {})}
    writer = ShardedWriter(folder, tensors, metadata, request.shard_bytes)
    for tensor in tensors:
        writer.write(tensor.name, source.read(tensor.name))
    return writer.files


def _read_safetensors(folder: Path) -> StoredParameters:
    arrays = SafetensorsFolder(folder)
    if _NAMES not in arrays.metadata:
        raise ConversionError(
            f"{folder} has no {CONFIG}, and its arrays are not under T5X's names: name a folder that transformers' "
            "save_pretrained wrote, or one of t5x-harness convert --to safetensors"
        )
    return StoredParameters(
        where=str(folder),
        layout="safetensors",
        tensors=arrays.tensors,
        step=arrays.number(STEP),
        others=0,
        read_array=arrays.read,
    )


def _report(
    request: ConversionRequest, source: StoredParameters, model: str, output: str, files: Sequence[Path]
) -> Conversion:
    tensors = source.tensors.values()
    others = f"{source.others} other array{'s' if source.others > 1 else ''}, such as the optimizer's state"
    return Conversion(
        source=source.where,
        layout=source.layout,
        to=request.to,
        output=output,
        step=source.step,
        model=model,
        model_type="",
        arrays=len(tensors),
        num_bytes=sum(tensor.num_bytes for tensor in tensors),
        dtypes=tuple(sorted({tensor.dtype for tensor in tensors})),
        files=tuple(file.name for file in files),
        left_out=(others,) if source.others else (),
    )
