"""Which data to read, and the task or mixture that a config names."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import seqio
from absl import logging


@dataclasses.dataclass
class DatasetConfig:
    """How to read a dataset from a SeqIO task or mixture.

    Attributes:
        mixture_or_task_name: A registered name, or the task or mixture itself.
        task_feature_lengths: Tokens for each feature. Where no packing is done, None takes the longest example.
        split: Name of the split.
        batch_size: Examples in the global batch.
        shuffle: Shuffle the examples in memory.
        seed: For shuffling and random preprocessors; None takes the time of day, the same on every host.
        use_cached: Read SeqIO's offline cache rather than the source.
        pack: Put several short examples into one row.
        use_custom_packing_ops: Pack with compiled ops.
        module: A module to import first, for the tasks that it registers. Deprecated: import it in Gin.
        use_memory_cache: Keep evaluation examples in memory.
        trim_output_features: Cut features to ``task_feature_lengths``.
        runtime_preprocessors: For AirIO sources; SeqIO has no use for it.
        num_prefetch_threads: For AirIO sources; SeqIO has no use for it.
        num_workers: For AirIO sources; SeqIO has no use for it.
    """

    mixture_or_task_name: str | seqio.Task | seqio.Mixture
    task_feature_lengths: Mapping[str, int]
    split: str
    batch_size: int
    shuffle: bool
    seed: int | None
    use_cached: bool = False
    pack: bool = False
    use_custom_packing_ops: bool = False
    module: str | None = None
    use_memory_cache: bool = True
    trim_output_features: bool = True
    runtime_preprocessors: Sequence[Any] | None = None
    num_prefetch_threads: int | None = None
    num_workers: int | None = 0


def import_module(module: str) -> None:
    """Imports a module for the tasks and mixtures that it registers.

    Args:
        module: Its full name.

    Raises:
        ImportError: There is no such module, or one that it needs.
        RuntimeError: It registers Gin configurables, which must happen before the Gin files are parsed.
    """
    logging.info("Importing %s.", module)
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        # Only the named module (or a package on the way to it) is the config's mistake; what the module itself
        # imports is the module's.
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise
        raise ModuleNotFoundError(
            f"No module named {error.name!r}, which `DatasetConfig.module = {module!r}` asks for. Correct the name "
            "(MIXTURE_OR_TASK_MODULE in most configs), or put the folder that holds it on PYTHONPATH.",
            name=error.name,
        ) from error
    except RuntimeError as error:
        if "configurable after the config was locked" not in str(error):
            raise
        raise RuntimeError(
            f"Module {module!r} registers Gin configurables, but it is imported only after the Gin config was locked. "
            f"Import it from the Gin file instead: add the line `import {module}` and drop `DatasetConfig.module`."
        ) from error


def is_airio(value: object) -> bool:
    """Whether a value belongs to AirIO, without importing AirIO."""
    return any(cls.__module__.partition(".")[0] == "airio" for cls in type(value).__mro__)


def refuse_airio(value: object) -> None:
    """Raises a ValueError if ``value`` belongs to AirIO."""
    if is_airio(value):
        raise ValueError(
            f"{type(value).__module__}.{type(value).__qualname__} belongs to AirIO, but the embedded T5X runtime reads "
            "SeqIO tasks and mixtures only. Name a SeqIO task, or install T5X itself to run this config."
        )


def get_provider(cfg: DatasetConfig) -> seqio.Task | seqio.Mixture:
    """Finds the task or mixture that a config names.

    Raises:
        ValueError: Nothing of that name is registered; or it is an AirIO one.
        TypeError: It is neither a name nor a task or mixture.
    """
    named = cfg.mixture_or_task_name
    if isinstance(named, seqio.DatasetProviderBase):
        return named
    refuse_airio(named)
    if not isinstance(named, str):
        raise TypeError(
            "`DatasetConfig.mixture_or_task_name` must be the name of a registered task or mixture, or one itself; "
            f"got {named!r}."
        )
    known = {*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()}
    if named not in known:
        raise ValueError(_unknown_name(named, known))
    return seqio.get_mixture_or_task(named)


def _unknown_name(name: str, known: set[str]) -> str:
    what = f"No Task or Mixture found with name {name!r}"
    fix = "import the module that registers it in the Gin file, or name the module in MIXTURE_OR_TASK_MODULE"
    if not known:
        return f"{what}: none is registered; {fix}."
    close = difflib.get_close_matches(name, sorted(known), n=3)
    if close:
        return f"{what}; did you mean {' or '.join(map(repr, close))}? ({len(known)} are registered.) Otherwise {fix}."
    return f"{what}, nor one of a similar name among the {len(known)} that are registered; {fix}."


def warn_of_airio_settings(cfg: DatasetConfig) -> None:
    """Logs the settings of ``cfg`` that SeqIO has no use for."""
    defaults = {field.name: field.default for field in dataclasses.fields(DatasetConfig)}
    for name in ("runtime_preprocessors", "num_prefetch_threads", "num_workers"):
        if getattr(cfg, name) != defaults[name]:
            logging.warning("`DatasetConfig.%s` only concerns AirIO sources; it is ignored for a SeqIO one.", name)
