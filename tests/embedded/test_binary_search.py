"""binary_search: thresholds as sorting finds them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from t5x import binary_search

LIMITS = np.iinfo(np.int32)
RNG = np.random.default_rng(0)


def test_the_largest_int_that_is_not_beyond_is_found_in_each_element() -> None:
    last = np.array([[LIMITS.min, -7, -1], [0, 12345, LIMITS.max]], np.int32)
    found = binary_search.int32_bsearch(last.shape, lambda x: x > last)
    assert found.dtype == jnp.int32
    np.testing.assert_array_equal(found, last)
    assert binary_search.int32_bsearch((), lambda x: jnp.bool_(True)) == LIMITS.min


def test_the_largest_float_that_is_not_beyond_is_found_in_each_element() -> None:
    largest = np.finfo(np.float32).max
    last = np.array([-largest, -1.5, -1e-30, 1e-3, 7.25, largest], np.float32)
    found = binary_search.float32_bsearch(last.shape, lambda x: x > last)
    np.testing.assert_array_equal(found, last)
    assert binary_search.float32_bsearch((), lambda x: jnp.bool_(True)) == -np.inf
    assert binary_search.float32_bsearch((), lambda x: jnp.bool_(False)) == largest


@pytest.mark.parametrize(("shape", "k"), [((40,), 7), ((3, 40), 1), ((2, 3, 40), 39)])
def test_the_k_largest_stay(shape: tuple[int, ...], k: int) -> None:
    x = RNG.normal(size=shape).astype(np.float32)
    least = np.sort(x, axis=-1)[..., -k, None]
    np.testing.assert_array_equal(binary_search.topk_mask(x, k, -1e7), np.where(x >= least, x, np.float32(-1e7)))


def test_values_as_large_as_the_last_stay_too() -> None:
    masked = binary_search.topk_mask(jnp.array([3.0, 1.0, 3.0, 2.0, 2.0]), 3, jnp.float32(-9))
    np.testing.assert_array_equal(masked, [3, -9, 3, 2, 2])


@pytest.mark.parametrize(
    ("p", "kept"),
    [(0.39, [True, False, False, False]), (0.55, [True, True, False, False]), (0.95, [True, True, True, True])],
)
@pytest.mark.parametrize("rows", [None, 2])
def test_the_likeliest_that_reach_p_stay(p: float, kept: Any, rows: int | None) -> None:
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1], np.float32))
    if rows:
        logits, kept = np.stack([logits, logits[::-1]]), np.stack([kept, kept[::-1]])
    masked = binary_search.topp_mask(logits, p, -1e7)
    np.testing.assert_array_equal(masked, np.where(kept, logits, np.float32(-1e7)))
