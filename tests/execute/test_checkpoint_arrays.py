"""What a stand-in holds for a checkpoint that the config transforms while it restores."""

from __future__ import annotations

import functools
import types
from typing import Any

import numpy as np

from t5x_harness.execute.sizes import Shrunk
from t5x_harness.plan.arrays import Leaf
from t5x_harness.plan.checkpoint_fit import checkpoint_names


def leaf(path: str, *shape: int) -> Leaf:
    return Leaf(path, shape, np.dtype(np.float32), (), ())


def restoring(*transforms: Any) -> Any:
    return types.SimpleNamespace(state_transformation_fns=transforms)


def mapped(*pairs: tuple[str, str | None]) -> Any:
    """Returns the function that T5X makes of an assignment_map, as it is known here: by its name and module."""

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
    shrunk = Shrunk(full, small, {"target/head": "target/logits"})
    assert shrunk.shape("target/layers_0/kernel", (512, 1024)) == (32, 64)
    assert shrunk.shape("target/layers_5/kernel", (512, 1024)) == (32, 64)  # a layer more than the model has
    assert shrunk.shape("target/logits", (512, 32_128)) == (32, 32_128)  # to be cut by the user's function
    assert shrunk.shape("target/adapter", (512, 7)) == (32, 7)
    assert shrunk.shape("state/step", ()) == ()


def test_an_optimizers_state_has_the_form_that_it_has_at_its_size() -> None:
    """Adafactor factors arrays of 128 rows and more, and keeps one of no use in place of the other form."""
    name = "state/param_states/dec/kernel/v"
    shrunk = Shrunk([leaf(name, 1)], [leaf(name, 32, 32)], {})
    assert shrunk.shape(name, (1,)) == (32, 32)
    assert Shrunk([], [leaf(name, 32, 32)], {}).shape(name, (1,)) == (32, 32)  # evaluation knows of no optimizer
