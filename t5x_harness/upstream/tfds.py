"""Private names of TensorFlow Datasets that concern how a builder defines and makes its splits."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tensorflow_datasets as tfds


def use_examples(builder: tfds.core.DatasetBuilder, splits: Mapping[str, Iterable[Any]]) -> None:
    """Makes a builder prepare given examples, without logging downloads.

    Args:
      builder: the builder to change.
      splits: keys and examples by split.
    """
    builder._split_generators = lambda dl_manager: dict(splits)
    builder._log_download_bytes = builder._log_download_done = lambda: None


def source_of_splits(builder_cls: type) -> str | None:
    """Returns the source of the method in which a builder names its splits; None if it cannot be read."""
    try:
        return textwrap.dedent(inspect.getsource(builder_cls._split_generators))  # type: ignore[attr-defined]
    except (OSError, TypeError, AttributeError):
        return None


def made_splits(builder: tfds.core.DatasetBuilder, download_manager: Any) -> tuple[str, ...]:
    """Returns the splits that a builder makes with a download manager; errors of the builder's code pass through."""
    arguments: dict[str, Any] = {"dl_manager": download_manager}
    if "pipeline" in inspect.signature(builder._split_generators).parameters:
        arguments["pipeline"] = None
    made = builder._split_generators(**arguments)
    return tuple(str(name) for name in (made if isinstance(made, dict) else (each.name for each in made)))


def list_length(feature: Any) -> int | None:
    """Returns the fixed length of a feature that is a list; None for any length."""
    return getattr(feature, "_length", None)
