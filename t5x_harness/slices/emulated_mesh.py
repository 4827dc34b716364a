"""Has T5X's mesh functions build the mesh of a TPU slice over forced CPU devices.

On CPUs, T5X ignores ``num_partitions`` and ``model_parallel_submesh`` and drops its sharding constraints. Here its own
functions are called while ``t5x.partitioning`` sees JAX as a process on the slice would: devices with coordinates,
kinds and hosts. Each virtual device in the result is then replaced by the CPU device with the same index. So a fork of
T5X that chooses another mesh is also emulated.
"""

import dataclasses
import functools
import inspect
import logging
import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from t5x_harness.slices.mesh import MeshRefused, mesh_text, plan_mesh, refusal
from t5x_harness.slices.slice import Slice
from t5x_harness.variables import POD_VARIABLE

_LOGGER = logging.getLogger(__name__)
_DATA_AXIS = "data"
_PLATFORMS = ("tpu", "cpu")


class DeviceCountMismatch(RuntimeError):
    """This process does not have as many CPU devices as the slice has devices."""


@dataclasses.dataclass(frozen=True)
class VirtualDevice:
    """A device of the slice, with the attributes of a TPU device that T5X and JAX read."""

    id: int
    coords: tuple[int, int, int]
    core_on_chip: int
    process_index: int
    device_kind: str
    slice_index: int = 0
    platform: str = "tpu"

    def __repr__(self) -> str:
        place = f"process_index={self.process_index}, coords={self.coords}, core_on_chip={self.core_on_chip}"
        return f"VirtualTpuDevice(id={self.id}, {place})"


class _JaxOnSlice:
    """The module ``jax`` as a process on the slice sees it: the slice's devices, and everything else from JAX.

    The process is host 0, unless it is one of several processes that are the slice's hosts.
    """

    def __init__(self, jax: Any, slice_: Slice) -> None:
        self._jax = jax
        self._devices = [
            VirtualDevice(i, (d.x, d.y, d.z), d.core, d.host, slice_.generation.device_kind)
            for i, d in enumerate(slice_.coordinates)
        ]
        self._hosts = slice_.hosts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._jax, name)

    def devices(self, backend: str | None = None) -> list[VirtualDevice]:
        if backend not in (None, *_PLATFORMS):
            raise RuntimeError(f"Unknown backend {backend!r}: a TPU host has {' and '.join(_PLATFORMS)}")
        return list(self._devices)

    def local_devices(self, process_index: int | None = None, *_: Any, **__: Any) -> list[VirtualDevice]:
        host = self.process_index() if process_index is None else process_index
        return [d for d in self._devices if d.process_index == host]

    def device_count(self, *_: Any, **__: Any) -> int:
        return len(self._devices)

    def local_device_count(self, *_: Any, **__: Any) -> int:
        return len(self.local_devices())

    def process_count(self, *_: Any, **__: Any) -> int:
        return self._hosts

    def process_index(self, *_: Any, **__: Any) -> int:
        if not (os.environ.get(POD_VARIABLE) or self._jax.distributed.is_initialized()):
            return 0  # without calling JAX, which would create its devices now
        index: int = self._jax.process_index()
        return index


class SliceView:
    """Runs functions of a module while that module sees the slice.

    Args:
      function: a function of ``t5x.partitioning``, which is the module.
      slice_: the slice that the module sees.
      data_positions: the number of positions along a mesh's data axis to keep, the first ones; None for all.
      devices: devices to replace the slice's, in their order; None for this process's CPU devices.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        slice_: Slice,
        data_positions: int | None,
        devices: Sequence[Any] | None = None,
    ) -> None:
        self._globals = inspect.unwrap(function).__globals__
        self._slice = slice_
        self._data_positions = data_positions
        self._devices = devices
        self._lock = threading.RLock()

    def wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a function so that it behaves as on the slice."""

        @functools.wraps(function)
        def on_slice(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                jax = self._globals["jax"]
                if isinstance(jax, _JaxOnSlice):  # called by another wrapped function
                    return function(*args, **kwargs)
                self._globals["jax"] = _JaxOnSlice(jax, self._slice)
                try:
                    answer = self._asked(function, args, kwargs)
                finally:
                    self._globals["jax"] = jax
            return self._on_real_devices(answer)

        return on_slice

    def _asked(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if function.__name__ != "default_mesh":
            return function(*args, **kwargs)
        given = inspect.signature(function).bind(*args, **kwargs).arguments
        try:
            mesh = function(*args, **kwargs)
        except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
            raise self._refused(given, error) from error
        self._compare_with_plan(given, mesh)
        return mesh

    def _refused(self, given: Mapping[str, Any], error: Exception) -> MeshRefused:
        if _spans_slices(given):
            shapes = f"ici_mesh_shape {given['ici_mesh_shape']} with dcn_mesh_shape {given['dcn_mesh_shape']}"
            return MeshRefused(f"{shapes} does not fit {self._slice.describe()}: {error}")
        num_partitions, submesh = given.get("num_partitions"), given.get("model_parallel_submesh")
        try:
            plan_mesh(self._slice, num_partitions, submesh)
        except MeshRefused as planned:
            return planned
        why = str(error).partition("\n")[0] or type(error).__name__
        return refusal(self._slice, math.prod(submesh) if submesh else num_partitions, f"T5X refuses: {why}")

    def _compare_with_plan(self, given: Mapping[str, Any], mesh: Any) -> None:
        if _spans_slices(given):
            return
        rows = tuple(tuple(d.id for d in row) for row in mesh.devices)
        try:
            planned = plan_mesh(self._slice, given.get("num_partitions"), given.get("model_parallel_submesh"))
        except MeshRefused:
            planned = None
        if planned is None or planned.device_indices != rows:
            _LOGGER.warning(
                "this T5X lays out %s as %s, where the plan says %s; its own layout is used",
                self._slice.name,
                dict(mesh.shape),
                mesh_text(planned.shape) if planned else "that it refuses",
            )

    def _on_real_devices(self, answer: Any) -> Any:
        """Replaces the virtual devices of a mesh by real ones, and truncates the mesh; other values stay unchanged."""
        import jax
        import numpy as np

        if not isinstance(answer, jax.sharding.Mesh) or not isinstance(answer.devices.flat[0], VirtualDevice):
            return answer
        there = self._devices if self._devices is not None else self._cpu_devices()
        kept = tuple(slice(self._data_positions if axis == _DATA_AXIS else None) for axis in answer.axis_names)
        virtual = answer.devices[kept]
        devices = np.empty(virtual.shape, dtype=object)
        for place in np.ndindex(devices.shape):
            devices[place] = there[virtual[place].id]
        return jax.sharding.Mesh(devices, answer.axis_names, axis_types=answer.axis_types)

    def _cpu_devices(self) -> Sequence[Any]:
        import jax

        cpus: list[Any] = jax.devices()
        if len(cpus) != self._slice.num_devices or cpus[0].platform != "cpu":
            raise DeviceCountMismatch(
                f"slice {self._slice.name} has {self._slice.num_devices} devices, but this process has {len(cpus)}"
                f" {cpus[0].platform} devices: start it as t5x-harness exec --slice {self._slice.name} -- COMMAND, or"
                f" call t5x_harness.slices.devices.force_cpu_devices({self._slice.num_devices}) before anything uses"
                " JAX"
            )
        return cpus


def device_numbers(mesh: Any) -> Any:
    """Returns the numbers of a mesh's CPU devices as devices of the slice, in the shape of the mesh.

    They are the ids of the devices, except in a pod, where JAX leaves gaps between those of two hosts.
    """
    import jax
    import numpy as np

    numbers = {device.id: number for number, device in enumerate(jax.devices())}
    return np.vectorize(lambda device: numbers.get(device.id, device.id), otypes=[int])(mesh.devices)


def _spans_slices(given: Mapping[str, Any]) -> bool:
    return given.get("ici_mesh_shape") is not None and given.get("dcn_mesh_shape") is not None
