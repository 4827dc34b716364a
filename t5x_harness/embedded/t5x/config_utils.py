"""Fiddle as an alternative to Gin for configuring T5X's programs."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import fiddle as fdl
import jax
from absl import flags, logging
from etils import epath
from fiddle import absl_flags as fdl_flags
from fiddle import selectors
from fiddle.experimental import serialization
from t5x import gin_utils, utils
from t5x._lazy import metric_writers

FLAGS = flags.FLAGS
T = TypeVar("T")


def using_fdl() -> bool:
    """Returns whether Fiddle configures: ``--fdl_config``, ``--fdl_config_file`` or ``--fdl_help`` is given."""
    return FLAGS.fdl_config is not None or FLAGS.fdl_config_file is not None or bool(FLAGS.fdl_help)


def prepare_to_summarize(config: fdl.Buildable[T]) -> fdl.Buildable[T]:
    """Returns a copy of a config whose ``summarize_fiddle_config`` parts write ``config`` itself."""
    # A function, because Fiddle would take the config itself as a part of the config.
    return _with_getter(config, lambda: config)


def sanitize_summary_getter(config: fdl.Buildable[T]) -> fdl.Buildable[T]:
    """Returns a copy of a config without the additions of ``prepare_to_summarize``."""
    return _with_getter(config, None)


def _with_getter(config: fdl.Buildable[T], getter: Callable[[], fdl.Buildable[T]] | None) -> fdl.Buildable[T]:
    changed = copy.deepcopy(config)
    selectors.select(changed, direct_summarize_fiddle_config).set(get_current_fiddle_config=getter)
    return changed


def direct_summarize_fiddle_config(
    model_dir: str,
    summary_writer: metric_writers.MetricWriter | None,
    step: int,
    get_current_fiddle_config: Callable[[], fdl.Buildable[Any]] | None = None,
) -> None:
    """Writes the config to ``fiddle_config.txt``, as JSON beside it if it can be, and to TensorBoard.

    Only the first host does, at the given train step, to a ``summary_writer`` that is not None. Configs name
    ``summarize_fiddle_config``, not this function, and ``prepare_to_summarize`` fills in its last argument.

    Raises:
        ValueError: the config was not prepared.
    """
    if jax.process_index() != 0:
        return
    if get_current_fiddle_config is None:
        raise ValueError(
            "`get_current_fiddle_config` is not set, so there is no config to write: pass the config through "
            "t5x.config_utils.prepare_to_summarize before building it."
        )
    config = sanitize_summary_getter(get_current_fiddle_config())
    text = str(config)
    folder = epath.Path(model_dir)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "fiddle_config.txt").write_text(text)
    try:
        as_json = serialization.dump_json(config)
    except serialization.UnserializableValueError as error:
        logging.warning("fiddle_config.json is not written, for JSON can't hold all of the config: %s", error)
    else:
        (folder / "fiddle_config.json").write_text(as_json)
    if summary_writer is not None:
        summary_writer.write_texts(step, {"fiddle_config": text})
        summary_writer.flush()


# Bind this to `summarize_config_fn`.
summarize_fiddle_config = fdl.Partial(direct_summarize_fiddle_config)


def config_with_fiddle(function: Callable[..., T]) -> fdl.Buildable[Callable[..., T]]:
    """Makes the config that Fiddle's command line flags describe: a ``fdl.Partial`` of ``function``.

    Raises:
        AssertionError: there are no Fiddle flags.
        ValueError: there are Gin flags too, or two Fiddle configs; or the config is not for ``function``.
    """
    assert using_fdl(), "config_with_fiddle needs --fdl_config or --fdl_config_file; neither is given."
    _check_one_config()
    # Only a config given as a Python function may import modules.
    allow = {"allow_imports": True} if FLAGS.fdl_config else {}
    config = fdl.cast(fdl.Partial, fdl_flags.create_buildable_from_flags(function, **allow))
    configured = config.__fn_or_cls__
    if not _same_function(configured, function):
        raise ValueError(
            f"The Fiddle flags must configure {_full_name(function)}, but they configure {_full_name(configured)}."
            f"\n\nConfig: {config}"
        )
    return prepare_to_summarize(config)


def _check_one_config() -> None:
    names = ("fdl_config_file", "fdl_config", "gin_file", "gin_bindings")
    given = {name: value for name in names if (value := FLAGS.get_flag_value(name, None))}
    kinds = [name if name.startswith("fdl") else "gin" for name in given]
    if len(set(kinds)) > 1:
        listed = ", ".join(f"--{name}={value}" for name, value in given.items())
        raise ValueError(
            "Must pass exactly one of `--fdl_config_file`, `--fdl_config`, or `--gin_file` / `--gin_bindings`. "
            f"Got: {listed}."
        )


def _same_function(a: Callable[..., Any], b: Callable[..., Any]) -> bool:
    """Returns whether two names are the same function: a module that runs as ``__main__`` has another name there."""
    sources = [inspect.getsource(module) if module else None for module in map(inspect.getmodule, (a, b))]
    return a.__qualname__ == b.__qualname__ and sources[0] == sources[1]


def _full_name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def run(main: Callable[[Sequence[str]], Any]) -> None:
    """Runs ``main`` as an absl application that takes JAX's, Gin's and Fiddle's flags, and exits."""
    jax.config.parse_flags_with_absl()
    if using_fdl():
        utils.run_main(main, flags_parser=lambda args: fdl_flags.flags_parser(gin_utils.rewrite_gin_args(args)))
    else:
        gin_utils.run(main)
