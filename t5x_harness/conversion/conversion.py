"""Runs a conversion: opens its source, checks it, writes the output, and moves that into place when complete."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence
from pathlib import Path

from t5x_harness.buckets.emulated import local_path
from t5x_harness.buckets.folders import COMMITTED
from t5x_harness.conversion.architecture import Architecture, architecture_of
from t5x_harness.conversion.checking import compare, require_libraries
from t5x_harness.conversion.comparing import require_same
from t5x_harness.conversion.errors import ConversionError
from t5x_harness.conversion.flavors import flavor_of
from t5x_harness.conversion.names import parameters
from t5x_harness.conversion.places import written_whole
from t5x_harness.conversion.request import Conversion, ConversionRequest, Form
from t5x_harness.conversion.safetensors_files import SafetensorsFolder, ShardedWriter, dtype_named
from t5x_harness.conversion.settings import BYTES, ModelSettings, Vocabulary, settings_of
from t5x_harness.conversion.stored import StoredParameters, read_t5x
from t5x_harness.conversion.t5x_checkpoint import LazyArray, write_checkpoint
from t5x_harness.conversion.tokenizer import write_tokenizer
from t5x_harness.conversion.transformers_folder import (
    CONFIG,
    STEP,
    read_transformers,
    write_transformers,
)

_NAMES = "t5x_names"
_OWN_CONFIG = "config.gin"
_LAST_STEP = 2**31 - 1


def convert(request: ConversionRequest) -> Conversion:
    """Converts a checkpoint.

    Raises:
      ConversionError: the checkpoint cannot be read, does not fit, or the output cannot be written. No output is left.
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
            made = write_checkpoint(folder, step, _lazy(source))
            for child in list(made.iterdir()):
                child.rename(folder / child.name)
            made.rmdir()
            for part in (folder, *(path for path in folder.iterdir() if path.is_dir())):
                (part / COMMITTED).touch()  # so that a copy at gs:// is whole, too
            files = sorted(path for path in folder.iterdir() if path.is_file())
    return _report(request, source, str(sizes or ""), output, files)


def _opened(request: ConversionRequest) -> tuple[StoredParameters, Architecture | None]:
    """Returns the parameters of the checkpoint that the user names, and the sizes of a model of transformers."""
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
    config = _config_files(request, source)
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


def _config_files(request: ConversionRequest, source: StoredParameters) -> tuple[str, ...]:
    """Returns the config files that the user names, or the one beside the checkpoint."""
    own = os.path.join(os.path.dirname(source.where), _OWN_CONFIG)
    return request.gin_files or ((own,) if os.path.isfile(own) else ())


def _settings(request: ConversionRequest, files: tuple[str, ...]) -> ModelSettings:
    settings = (
        settings_of(files, request.bindings, request.search_paths) if files or request.bindings else ModelSettings()
    )
    if request.vocabulary is None:
        return settings
    path = None if request.vocabulary == BYTES else request.vocabulary
    return dataclasses.replace(settings, vocabulary=Vocabulary(path, request.extra_ids), doubt="")


def _require_sizes(source: StoredParameters, sizes: Architecture, settings: ModelSettings) -> None:
    """Raises ConversionError for the config of another model."""
    different = [
        f"{name} is {getattr(sizes, name)} in the checkpoint and {value} in the config"
        for name, value in settings.sizes
        if getattr(sizes, name) != value
    ]
    if different:
        raise ConversionError(
            f"{source.where} is not of the config's model: {'; '.join(different)}. Name the config of its own run"
        )


def _lazy(source: StoredParameters) -> dict[str, LazyArray]:
    return {
        each.name: LazyArray(each.shape, dtype_named(each.dtype), functools.partial(source.read, each.name))
        for each in source.tensors
    }


def _write_safetensors(folder: Path, source: StoredParameters, request: ConversionRequest) -> list[Path]:
    """Writes the parameters under T5X's own names."""
    tensors = sorted(source.tensors, key=lambda tensor: tensor.name)
    metadata = {_NAMES: "1", **({STEP: str(source.step)} if source.step is not None else {})}
    writer = ShardedWriter(folder, tensors, metadata, request.shard_bytes)
    for tensor in tensors:
        writer.write(tensor.name, source.read(tensor.name))
    writer.finish()
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
        shapes={name: tensor.shape for name, tensor in arrays.tensors.items()},
        dtypes={name: tensor.dtype for name, tensor in arrays.tensors.items()},
        step=arrays.number(STEP),
        others=0,
        read_array=arrays.read,
    )


def _report(
    request: ConversionRequest, source: StoredParameters, model: str, output: str, files: Sequence[Path]
) -> Conversion:
    tensors = source.tensors
    others = f"{source.others} other array{'s' if source.others > 1 else ''}, such as the optimizer's state"
    left_out = [others] if source.others else []
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
        left_out=tuple(left_out),
    )
