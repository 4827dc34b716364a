"""A user's functions for ``RestoreCheckpointConfig.state_transformation_fns``."""

from __future__ import annotations

from typing import Any


def without_logits(state_dict: Any, target_state_dict: Any, *, is_resuming: bool = False) -> Any:
    """Takes the logits' weights out of a checkpoint, so that a run begins with new ones."""
    if is_resuming:
        return state_dict
    target = dict(state_dict["target"])
    assert target["decoder"]["logits_dense"]  # it is given what the checkpoint holds
    target["decoder"] = {name: value for name, value in target["decoder"].items() if name != "logits_dense"}
    return {**state_dict, "target": target}
