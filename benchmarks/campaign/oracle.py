"""T5X itself as the judge: one mutant in a forked process, as ``python -m t5x.main`` runs it."""

import os
import resource
import runpy
import sys
import traceback
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from t5x_harness.runtime.choice import activate, runtime_of
from t5x_harness.runtime.compile_cache import compile_cheaply
from t5x_harness.slices.devices import force_cpu_devices
from t5x_harness.slices.slice import get_slice
from t5x_harness.spec import RunSpec
from t5x_harness.upstream.short_run import configure_for_short_run
from t5x_harness.upstream.t5x import install_mesh

from .constant import watch_data

FACTORY = f"{__name__}:open_oracle"
_FRAMES = 12
_MEMORY = 8 * 2**30
"""The most bytes that T5X may allocate: the memory of a laptop, in which a mistake must not take the others' place."""


def open_oracle(argument: Mapping[str, Any], _: Callable[[dict[str, Any]], None]) -> SimpleNamespace:
    """Gives this process the devices of a slice; nothing of the config is read.

    Args:
      argument: ``spec``, a RunSpec as JSON.
    """
    spec = RunSpec.from_json(argument["spec"])
    activate(runtime_of(spec))
    slice_ = get_slice(spec.slice)
    compile_cheaply()
    force_cpu_devices(slice_.num_devices)
    install_mesh(slice_)
    configure_for_short_run()
    return SimpleNamespace(run=lambda: run(spec))


def run(spec: RunSpec) -> dict[str, Any]:
    """Runs T5X's own program on a config.

    Returns:
      ``error``: the text of the exception that ended it, empty if none did; ``type``: its name; ``frames``: the
      innermost places where it was raised; ``constant``: what is the same in all examples of its first dataset.
    """
    constant = watch_data()
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    sys.argv = [
        "main.py",
        f"--run_mode={spec.mode}",
        *(f"--gin_file={file}" for file in spec.gin_files),
        *(f"--gin_bindings={binding}" for binding in spec.bindings),
    ]
    sys.path.insert(0, os.getcwd())
    try:
        runpy.run_module("t5x.main", run_name="__main__", alter_sys=True)
    except SystemExit as stop:
        return _ending(stop) if stop.code else {**_ending(None), "constant": constant()}
    except BaseException as error:
        traceback.print_exc()
        return _ending(error)
    return {**_ending(None), "constant": constant()}


def _ending(error: BaseException | None) -> dict[str, Any]:
    if error is None:
        return {"error": "", "type": "", "frames": []}
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    return {"error": str(error)[:2000], "type": type(error).__name__, "frames": places}
