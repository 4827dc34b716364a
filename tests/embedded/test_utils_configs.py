"""Checkpoint configs accept what T5X accepts, and say what they do not."""

from __future__ import annotations

import dataclasses

import pytest
from t5x import checkpoints, utils


@pytest.mark.parametrize("dtype", [None, "float32", "bfloat16"])
def test_dtypes_to_save_in(dtype: str | None) -> None:
    assert utils.SaveCheckpointConfig(dtype=dtype).dtype == dtype


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_other_dtypes_to_save_in_are_refused() -> None:
    with pytest.raises(ValueError, match="must be one of") as error:
        utils.SaveCheckpointConfig(dtype="float16")
    assert str(error.value) == (
        "`SaveCheckpointConfig.dtype` must be one of None, 'float32', 'bfloat16'; got 'float16'."
    )


@pytest.mark.parametrize("dtype", [None, "float32", "bfloat16", "float16"])
def test_dtypes_to_restore_in(dtype: str | None) -> None:
    assert utils.RestoreCheckpointConfig(path="x", dtype=dtype).dtype == dtype


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_other_modes_and_dtypes_to_restore_in_are_refused() -> None:
    with pytest.raises(ValueError, match=r"dtype` must be one of None, .*'float16'; got 'int8'"):
        utils.RestoreCheckpointConfig(path="x", dtype="int8")
    with pytest.raises(ValueError, match="must be one of") as error:
        utils.RestoreCheckpointConfig(path="x", mode="newest")
    assert str(error.value) == (
        "`RestoreCheckpointConfig.mode` must be one of 'specific', 'latest', 'all'; got 'newest'."
    )


def test_assignment_map_becomes_the_first_transformation() -> None:
    def other(state, target):
        return state

    cfg = utils.RestoreCheckpointConfig(path="x", assignment_map=[(r"(.*)", r"\1")], state_transformation_fns=[other])
    renaming, last = cfg.state_transformation_fns
    assert renaming.keywords == {"assignment_map": [(r"(.*)", r"\1")]}
    assert last is other


def test_defaults_are_t5xs() -> None:
    save, restore = utils.SaveCheckpointConfig(), utils.RestoreCheckpointConfig("x")
    for cfg in (save, restore):
        assert cfg.checkpointer_cls is checkpoints.Checkpointer
        assert cfg.checkpoint_manager_cls is checkpoints.OrbaxCheckpointManagerInterface
    assert save.state_transformation_fns == []
    assert save.state_transformation_fns is not utils.SaveCheckpointConfig().state_transformation_fns
    assert dataclasses.astuple(utils.CheckpointConfig()) == (None, None)
