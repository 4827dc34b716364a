"""Helpers for all hosts at once work on one host too, and hardware random numbers are switched on for good."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver
from t5x import utils


@pytest.fixture
def prng_impl() -> Iterator[None]:
    before = jax.config.jax_default_prng_impl
    yield
    jax.config.update("jax_default_prng_impl", before)


@pytest.mark.usefixtures("prng_impl")
def test_hardware_rng_changes_the_kind_of_new_keys() -> None:
    assert jax.random.PRNGKey(0).shape == (2,)
    utils.set_hardware_rng_ops()
    assert jax.config.jax_default_prng_impl == "unsafe_rbg"
    assert jax.random.PRNGKey(0).shape == (4,)


def test_one_host_agrees_with_itself() -> None:
    utils.multihost_assert_equal({"seed": np.array(3), "shape": np.array([1, 2])}, "differs")
    utils.sync_global_devices("alone")


def test_main_gets_what_the_parser_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["program", "--known", "rest"])
    got: list[list[str]] = []

    def parse(argv: list[str]) -> list[str]:
        assert argv == ["program", "--known", "rest"]
        return flags.FLAGS([argv[0], argv[2]])

    with flagsaver.flagsaver(), pytest.raises(SystemExit) as done:
        utils.run_main(lambda argv: got.append(list(argv)), parse)
    assert not done.value.code
    assert got == [["program", "rest"]]
