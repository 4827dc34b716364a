"""Shrinking preserves everything that the mesh and T5X check, and the contents of a transformed checkpoint."""

import functools
import types
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t5x_harness.execute import sizes
from t5x_harness.plan.arrays import Leaf
from t5x_harness.plan.checkpoint_fit import checkpoint_names

DATA, MODEL = st.sampled_from([1, 2, 4, 6, 8, 64]), st.sampled_from([1, 2, 4, 8, 16])


def _cut(data: int, model: int) -> sizes.Axes:
    return sizes.Axes(data, model, sizes.small_axis(data, model))


AXES = st.one_of(st.builds(sizes.Axes, data=DATA, model=MODEL), st.builds(_cut, data=DATA, model=MODEL))
SIZES = st.integers(1, 8192)


@given(heads=st.integers(1, 128), axes=AXES)
def test_heads_divide_as_before_and_never_grow(heads: int, axes: sizes.Axes) -> None:
    small = sizes.small_heads(heads, axes)
    assert 1 <= small <= heads
    if heads % axes.model == 0:
        assert small % axes.model == 0


@given(width=SIZES, target=st.integers(1, 64), axes=AXES)
def test_widths_divide_by_what_divided_them(width: int, target: int, axes: sizes.Axes) -> None:
    small = sizes.small_width(width, target, axes)
    assert min(width, target) <= small <= width
    for parts, executed in ((axes.model, axes.model), (axes.data * axes.model, axes.positions * axes.model)):
        if width % parts == 0:
            assert small % executed == 0


@given(batch=SIZES, axes=AXES, microbatches=st.sampled_from([1, 2, 3, 8]))
def test_batches_keep_a_part_for_every_position_and_microbatch(batch: int, axes: sizes.Axes, microbatches: int) -> None:
    small = sizes.small_batch(batch, axes, microbatches)
    assert small <= batch
    if batch % axes.data:
        assert small == batch  # which the plan refuses
    else:
        assert small % axes.positions == 0
    if batch % microbatches == 0:
        assert small % microbatches == 0
    if batch % (axes.data * microbatches) == 0:
        assert (small // microbatches) % axes.positions == 0


@given(data=st.integers(1, 2048), model=st.integers(1, 64))
def test_a_few_data_positions_divide_the_slices_and_leave_data_to_share(data: int, model: int) -> None:
    few = sizes.small_axis(data, model)
    assert data % few == 0
    assert (few == 1) == (data == 1)
    assert few == data or few * model <= sizes.DEVICES or not any(data % n == 0 for n in range(2, few))


@pytest.mark.parametrize(
    ("data", "model", "few"),
    [
        (8, 1, 8),  # v3-8
        (64, 2, 4),  # v2-128
        (512, 1, 8),  # v3-512
        (8, 16, 2),  # v3-128: the model axis remains whole
        (1, 8, 1),
        (3, 4, 3),  # v4:6x2x1: no smaller number of positions divides it
    ],
)
def test_slices_execute_on_about_as_many_devices_as_the_smallest(data: int, model: int, few: int) -> None:
    assert sizes.small_axis(data, model) == few


@given(st.dictionaries(st.sampled_from(["inputs", "targets", "extra"]), st.integers(1, 4096), max_size=3))
def test_lengths_keep_their_features_and_never_grow(lengths: dict[str, int]) -> None:
    small = sizes.small_lengths(lengths)
    assert small.keys() == lengths.keys()
    assert all(small[name] <= lengths[name] for name in lengths)
    assert max(small.values(), default=0) <= sizes.LONGEST


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ({"inputs": 512, "targets": 114}, {"inputs": 64, "targets": 16}),
        ({"inputs": 1024, "targets": 512}, {"inputs": 64, "targets": 32}),
        ({"inputs": 64, "targets": 48}, {"inputs": 64, "targets": 48}),
        ({}, {}),
    ],
)
def test_lengths_shrink_together(lengths: dict[str, int], expected: dict[str, int]) -> None:
    assert sizes.small_lengths(lengths) == expected


@pytest.mark.parametrize(
    ("size", "real", "expected"),
    [
        (32128, 32100, 32128),  # not large: kept
        (250112, 250100, 250112),  # needed
        (250112, 259, 384),  # a byte vocabulary under a large table
    ],
)
def test_the_embedding_keeps_a_row_for_every_id(size: int, real: int, expected: int) -> None:
    assert sizes.small_vocabulary(size, real, sizes.Axes(4, 2)) == expected


@given(value=st.integers(0, 10**6), before=st.integers(1, 10**6), after=st.integers(1, 100))
def test_schedule_steps_keep_their_order(value: int, before: int, after: int) -> None:
    scaled = sizes.steps_in_proportion(value, before, after)
    assert scaled >= min(value, 1)
    if value <= before and after <= before:
        assert scaled <= max(after, 1)


def leaf(path: str, *shape: int) -> Leaf:
    return Leaf(path, shape, np.dtype(np.float32), (), ())


def restoring(*transforms: Any) -> Any:
    return types.SimpleNamespace(state_transformation_fns=transforms)


def mapped(*pairs: tuple[str, str | None]) -> Any:
    """Returns the function that T5X makes from an assignment_map, which is known here by its name and module."""

    def apply_assignment_map(*_: Any, **__: Any) -> Any:
        raise AssertionError

    apply_assignment_map.__module__ = "t5x.state_utils"
    return functools.partial(apply_assignment_map, assignment_map=pairs)


def own_function(state_dict: Any, *_: Any, **__: Any) -> Any:
    return state_dict


def test_names_are_those_that_the_assignment_map_reads() -> None:
    restore = restoring(mapped((r"target/head/(.*)", r"target/logits/\1"), (".*param_states.*", None)))
    names = checkpoint_names(restore, ["target/head/kernel", "target/dec/kernel", "state/param_states/dec/kernel/v"])
    assert names == {
        "target/head/kernel": "target/logits/kernel",
        "target/dec/kernel": "target/dec/kernel",
        "state/param_states/dec/kernel/v": "state/param_states/dec/kernel/v",
    }


def test_the_first_of_several_maps_reads_the_checkpoint() -> None:
    restore = restoring(mapped(("b", "a")), own_function, mapped(("c", "b")))
    assert checkpoint_names(restore, ["c", "d"]) == {"c": "a", "d": "d"}


def test_a_checkpoint_keeps_its_names_and_shrinks_as_the_model_does() -> None:
    full = [leaf("target/layers_0/kernel", 512, 1024), leaf("target/layers_1/kernel", 512, 1024)]
    full += [leaf("target/head", 512, 400), leaf("target/scale", 512)]
    small = [leaf("target/layers_0/kernel", 32, 64), leaf("target/head", 32, 400), leaf("target/scale", 32)]
    shrunk = sizes.Shrunk(full, small, {"target/head": "target/logits"})
    assert shrunk.shape("target/layers_0/kernel", (512, 1024)) == (32, 64)
    assert shrunk.shape("target/layers_5/kernel", (512, 1024)) == (32, 64)  # one layer more than the model has
    assert shrunk.shape("target/logits", (512, 32_128)) == (32, 32_128)  # to be cut by the user's function
    assert shrunk.shape("target/adapter", (512, 7)) == (32, 7)
    assert shrunk.shape("state/step", ()) == ()


def test_an_optimizers_state_has_the_form_that_it_has_at_its_size() -> None:
    """Adafactor factors arrays of 128 rows and more, and keeps an unused array in place of the other form."""
    name = "state/param_states/dec/kernel/v"
    shrunk = sizes.Shrunk([leaf(name, 1)], [leaf(name, 32, 32)], {})
    assert shrunk.shape(name, (1,)) == (32, 32)
    assert sizes.Shrunk([], [leaf(name, 32, 32)], {}).shape(name, (1,)) == (32, 32)  # evaluation has no optimizer
