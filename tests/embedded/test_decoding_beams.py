"""Beam axes come and go without changing what a row holds."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import FrozenDict, freeze
from t5x import decoding

X = np.arange(24).reshape(2, 3, 4)


def test_beams_are_added_merged_and_split_again() -> None:
    for offset in (0, 1):
        added = decoding.add_beam_dim(jnp.asarray(X), 5, offset)
        np.testing.assert_array_equal(added, np.repeat(np.expand_dims(X, offset + 1), 5, axis=offset + 1))
        flat = decoding.flatten_beam_dim(added, offset)
        np.testing.assert_array_equal(flat, np.repeat(X, 5, axis=offset))
        np.testing.assert_array_equal(decoding.flat_batch_beam_expand(jnp.asarray(X), 5, offset), flat)
        np.testing.assert_array_equal(decoding.unflatten_beam_dim(flat, X.shape[offset], 5, offset), added)


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_rows_that_are_no_whole_number_of_beams_are_refused() -> None:
    with pytest.raises(AssertionError, match="2 rows cannot be split into 3 sequences of 2 beams"):
        decoding.unflatten_beam_dim(jnp.asarray(X), 3, 2)


@pytest.mark.parametrize("one_hot", [True, False])
def test_gathering_beams_indexes_every_row_by_its_own_choice(one_hot: bool) -> None:
    picked = decoding.gather_beams({"a": jnp.asarray(X)}, jnp.array([[2, 2], [0, 1]]), 2, 3, 2, one_hot)["a"]
    np.testing.assert_array_equal(picked, np.stack([X[0, [2, 2]], X[1, [0, 1]]]))
    assert picked.dtype == jnp.asarray(X).dtype


@pytest.mark.parametrize("one_hot", [True, False])
@pytest.mark.parametrize("offset", [0, 1])
def test_gathering_caches_leaves_shared_entries_alone(one_hot: bool, offset: int) -> None:
    value = np.moveaxis(np.stack([X, X + 100]), 0, 0 if offset else -1).astype(np.float32)
    cache = {"layer": {"cached_key": jnp.asarray(value), "cache_index": jnp.array(7), "cached_bias": jnp.ones(9)}}
    picked = decoding.cache_gather_beams(cache, jnp.array([[1], [0]]), 2, 3, 1, one_hot, offset)["layer"]
    rows = np.moveaxis(value, 0, -1) if offset else value
    expected = np.stack([rows[0, [1]], rows[1, [0]]])
    np.testing.assert_array_equal(picked["cached_key"], np.moveaxis(expected, -1, 0) if offset else expected)
    assert picked["cache_index"] == 7
    assert picked["cached_bias"].shape == (9,)


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_gathering_caches_with_the_batch_axis_elsewhere_is_refused() -> None:
    with pytest.raises(AssertionError, match="offset is 2"):
        decoding.cache_gather_beams({}, jnp.zeros((1, 1), jnp.int32), 1, 1, 1, offset=2)


def test_best_beams_come_last() -> None:
    scores = jnp.array([[0.5, -1.0, 2.0], [3.0, 1.0, 2.0]])
    kept, kept_scores = decoding.gather_topk_beams((jnp.asarray(X), scores), scores, 2, 2)
    np.testing.assert_array_equal(kept_scores, [[0.5, 2.0], [2.0, 3.0]])
    np.testing.assert_array_equal(kept, np.stack([X[0, [0, 2]], X[1, [2, 0]]]))


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("with_index", [True, False])
def test_caches_are_mapped_in_their_own_type(frozen: bool, with_index: bool) -> None:
    cache = {"a": {"cached_key": jnp.ones(2), "cache_index": jnp.array([1, 1]), "position_embedder_index": jnp.ones(1)}}
    mapped = decoding.cache_map(lambda x: x + 1, freeze(cache) if frozen else cache, apply_to_index=with_index)
    assert isinstance(mapped, FrozenDict) == frozen
    assert mapped["a"]["cached_key"].tolist() == [2, 2]
    assert mapped["a"]["cache_index"].tolist() == ([2, 2] if with_index else [1, 1])
    assert mapped["a"]["position_embedder_index"].tolist() == [1]


# One pass; two passes; two passes with a row that must be padded; too many rows for two passes.
@pytest.mark.parametrize("shape", [(2, 40), (2, 4096), (8, 3333), (9, 4096)])
def test_two_stage_top_k_finds_the_largest_and_of_equals_the_first(shape: tuple[int, int]) -> None:
    x = np.random.RandomState(0).randint(0, 30, shape).astype(np.float32)
    values, positions = decoding.top_k_two_stage(jnp.asarray(x), 3)
    expected = np.argsort(-x, axis=1, kind="stable")[:, :3]
    np.testing.assert_array_equal(positions, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, 1))


def test_brevity_penalty_grows_with_length() -> None:
    np.testing.assert_allclose(decoding.brevity_penalty(0.6, jnp.array([1, 7])), [1.0, 2**0.6], rtol=1e-6)
    assert decoding.brevity_penalty(0.0, 99) == 1.0
