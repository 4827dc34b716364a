"""Saves and restores on two devices, in a process of its own (see ``test_checkpoints_sharded.py``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


class ShardedProgram:
    """The object in the forked process."""

    def __init__(self, argument: Mapping[str, Any], progress: Callable[[Mapping[str, Any]], None]) -> None:
        pass

    def save_and_restore(self, folder: str) -> dict[str, Any]:
        """Saves a divided state in both layouts; returns for each what lies where after restoring."""
        import jax
        import numpy as np
        from small_states import flat, partitioner, shapes, state
        from t5x import checkpoints

        part, source = partitioner(), state()
        source = part.move_params_to_devices(source, part.get_mesh_axes(source))
        found: dict[str, Any] = {"devices": jax.device_count()}
        for layout in ("orbax", "legacy"):
            place = Path(folder) / layout
            place.mkdir()
            if layout == "orbax":
                manager = checkpoints.OrbaxCheckpointManagerInterface(str(place), shapes(source), part)
            else:
                manager = checkpoints.Checkpointer(shapes(source), part, str(place))
            manager.save(source)
            if layout == "orbax":
                manager.wait_until_finished()
            restored = manager.restore(step=3)
            kernel = restored.params["enc"]["kernel"]
            found[layout] = {
                "shards": [list(shard.data.shape) for shard in kernel.addressable_shards],
                "equal": all(
                    np.array_equal(value, flat(source.state_dict())[path])
                    for path, value in flat(restored.state_dict()).items()
                ),
                "files": sorted(p.name for p in (place / "checkpoint_3").rglob("0.*")),
            }
        return found
