"""Gin for T5X's programs: parsing files and flags, writing the config of a run, functions to call in configs."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any

import gin
import jax
from absl import app, logging
from t5x import utils
from t5x._errors import with_hint
from t5x._lazy import gfile, metric_writers

_GIN_FLAG = "--gin."


@gin.configurable
def get_gin_config_str(show_provenance: bool = False) -> str:
    """Writes out the current config, with the file and line of every binding in comments if ``show_provenance`` is set.

    Raises:
        TypeError: provenance is requested, and the installed Gin can't show it (gin-config 0.5 can't).
    """
    if not show_provenance:
        return gin.config_str()
    if "show_provenance" not in inspect.signature(gin.config_str).parameters:
        raise TypeError(
            "The installed gin-config can't show where bindings come from: leave "
            "`get_gin_config_str.show_provenance` unbound."
        )
    return gin.config_str(show_provenance=True)


def parse_gin_flags(
    gin_search_paths: Sequence[str],
    gin_files: Sequence[str],
    gin_bindings: Sequence[str],
    skip_unknown: bool | Sequence[str] = False,
    finalize_config: bool = True,
) -> None:
    """Parses Gin files, then bindings; the last value of a parameter wins. Logs the resulting config.

    ``skip_unknown`` ignores bindings of unregistered names, all or those listed. The config is locked afterwards
    unless ``finalize_config`` is False.

    Raises:
        OSError: a file is not found.
        SyntaxError: a file or binding is not Gin.
        ValueError: a binding names a parameter that does not exist or can't be bound.
    """
    for folder in gin_search_paths:
        gin.add_config_file_search_path(folder)
    gin.parse_config_files_and_bindings(
        gin_files, gin_bindings, finalize_config=finalize_config, skip_unknown=skip_unknown
    )
    logging.info("The Gin config:\n%s", get_gin_config_str())


def rewrite_gin_args(args: Sequence[str]) -> Sequence[str]:
    """Converts arguments ``--gin.NAME=VALUE`` to ``--gin_bindings=NAME = VALUE``; leaves the others alone.

    Raises:
        ValueError: a ``--gin.`` argument has no value.
    """

    def rewrite(arg: str) -> str:
        name, has_value, value = arg.removeprefix(_GIN_FLAG).partition("=")
        if not has_value:
            raise with_hint(
                ValueError(f"Gin bindings must be of the form '--gin.<param>=<value>', got: {arg}"),
                "The value belongs into the same argument, after '=' and without a space.",
            )
        return f"--gin_bindings={name} = {value}"

    return [rewrite(arg) if arg.startswith(_GIN_FLAG) else arg for arg in args]


@gin.register
def summarize_gin_config(model_dir: str, summary_writer: metric_writers.MetricWriter | None, step: int) -> None:
    """Writes the config to ``config.gin`` and, at ``step``, to TensorBoard; only the first host does."""
    if jax.process_index() != 0:
        return
    text = get_gin_config_str()
    gfile.makedirs(model_dir)
    with gfile.GFile(os.path.join(model_dir, "config.gin"), "w") as file:
        file.write(text)
    if summary_writer is not None:
        summary_writer.write_texts(step, {"config": gin.markdown(text)})
        summary_writer.flush()


def run(main: Callable[[Sequence[str]], Any]) -> None:
    """Runs ``main`` as an absl application that takes ``--gin.NAME=VALUE`` arguments, and exits."""
    utils.run_main(main, flags_parser=lambda args: app.parse_flags_with_usage(list(rewrite_gin_args(args))))


@gin.configurable
def sum_fn(var1: Any = gin.REQUIRED, var2: Any = gin.REQUIRED) -> Any:
    """Adds two values of a config, e.g. two macros."""
    return var1 + var2


@gin.configurable
def bool_fn(var1: Any = gin.REQUIRED) -> bool:
    """Returns whether a value of a config is true."""
    return bool(var1)


@gin.configurable
def string_split_fn(
    text: str = gin.REQUIRED, separator: str = gin.REQUIRED, maxsplit: int = -1, index: int | None = None
) -> list[str] | str:
    """Splits a string of a config, at most ``maxsplit`` times unless -1; returns one part by its index, or all."""
    parts = text.split(separator, maxsplit)
    return parts if index is None else parts[index]
