"""Runs ``python -m t5x.…`` in a forked process (see ``conftest.py``), and reads its files there."""

import os
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import recorded

from t5x_harness.upstream.short_run import configure_for_short_run


class Program:
    """The object in the forked process."""

    def __init__(self, argument: Mapping[str, Any], progress: Callable[[Mapping[str, Any]], None]) -> None:
        if argument["brief"]:
            configure_for_short_run()

    def run(self, module: str, flags: Sequence[str]) -> int:
        """Does what ``python -m module flags...`` does and returns its exit status."""
        sys.argv = [module, *flags]
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except SystemExit as ended:
            if isinstance(ended.code, str):
                print(ended.code, file=sys.stderr)
                return 1
            return ended.code or 0
        return 0

    def die_at_call(self, module: str, flags: Sequence[str], function: str, number: int) -> None:
        """Does what ``run`` does, but is killed at the ``number``-th call of ``package.module:Class.method``."""
        home, _, path = function.partition(":")
        scope, _, name = path.rpartition(".")
        owner = getattr(sys.modules[home], scope)
        original, calls = getattr(owner, name), []

        def killed(*args: Any, **kwargs: Any) -> Any:
            calls.append(None)
            if len(calls) == number:
                os._exit(9)
            return original(*args, **kwargs)

        setattr(owner, name, killed)
        self.run(module, flags)

    def observe(self, model_dir: str, final_step: int) -> dict[str, Any]:
        """Returns the results that a run wrote, in the form of the records."""
        return recorded.observe(model_dir, final_step)

    def scalars(self, folder: str) -> dict[str, Any]:
        """Returns every scalar below ``folder``."""
        return recorded.read_scalars(Path(folder))

    def save_and_restore(self, folder: str) -> dict[str, Any]:
        """Saves a state divided over the devices in both layouts; returns its placement after each is restored."""
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
