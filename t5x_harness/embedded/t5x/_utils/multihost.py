"""What concerns all hosts or the whole process: barriers, checks across hosts, hardware random numbers, ``main``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from absl import app
from jax.experimental import multihost_utils
from t5x._utils.callables import PyTree


def sync_global_devices(name: str) -> None:
    """Waits until all hosts have come to the barrier ``name``."""
    multihost_utils.sync_global_devices(name)


def multihost_assert_equal(input_tree: PyTree, fail_message: str = "") -> None:
    """Raises an AssertionError with ``fail_message`` unless every host passes an equal tree of arrays."""
    multihost_utils.assert_equal(input_tree, fail_message)


def set_hardware_rng_ops() -> None:
    """Draws JAX's random numbers by the accelerator's own generator: faster, and not the same twice."""
    jax.config.update("jax_default_prng_impl", "unsafe_rbg")


def run_main(main: Callable[[Sequence[str]], Any], flags_parser: Callable[[list[str]], Any]) -> None:
    """Runs ``main`` as an absl application, and exits.

    Args:
        main: Gets the arguments that are not flags.
        flags_parser: Parses the command line.
    """
    app.run(main, flags_parser=flags_parser)
