"""A pod: a slice of several hosts as several processes of this machine, each with its host's devices.

On a TPU pod every host runs the same program, and JAX finds the others by itself as soon as the program asks for
devices. Here a process is told through its environment which host it is; the first thing in it that needs devices, or
that calls ``jax.distributed.initialize()`` as it would there, joins the others over the loopback interface.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import threading
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Self

from t5x_harness.system.after_import import after_import
from t5x_harness.variables import POD_VARIABLE

__all__ = ["Pod", "join_when_needed"]


@dataclasses.dataclass(frozen=True)
class Pod:
    """A process's place among those of a slice.

    Attributes:
      coordinator: ``HOST:PORT`` on which process 0 brings them together.
      processes: how many there are: the slice's hosts.
      index: which one this is, from 0.
    """

    coordinator: str
    processes: int
    index: int

    def variables(self) -> dict[str, str]:
        """What tells a process of it."""
        return {
            POD_VARIABLE: f"{self.coordinator},{self.processes},{self.index}",
            "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
        }

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self | None:
        """Reads what :meth:`variables` gave; None for a process that is alone."""
        if not (text := environment.get(POD_VARIABLE)):
            return None
        coordinator, processes, index = text.split(",")
        return cls(coordinator, int(processes), int(index))


def join_when_needed(pod: Pod) -> None:
    """Has this process join its pod when JAX is first asked for devices; JAX need not be imported yet."""
    after_import("jax._src.distributed", functools.partial(_complete, pod))
    after_import("jax._src.xla_bridge", _join_before_backends)


def _complete(pod: Pod, distributed: ModuleType) -> None:
    """``jax.distributed.initialize()`` needs no arguments on a TPU pod: what is not given is this pod's."""
    original = distributed.initialize

    @functools.wraps(original)
    def initialize(
        coordinator_address: str | None = None,
        num_processes: int | None = None,
        process_id: int | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        original(
            coordinator_address or pod.coordinator,
            pod.processes if num_processes is None else num_processes,
            pod.index if process_id is None else process_id,
            *args,
            **kwargs,
        )
        # What this process starts from now on (workers that read data) is no host of the slice.
        os.environ.pop(POD_VARIABLE, None)

    distributed.__dict__["initialize"] = initialize


def _join_before_backends(bridge: ModuleType) -> None:
    """Whatever JAX is first asked that needs devices goes through this function of its own."""
    original = bridge.backends
    lock = threading.Lock()

    @functools.wraps(original)
    def backends() -> Any:
        import jax

        with lock:
            if not jax.distributed.is_initialized() and not bridge.backends_are_initialized():
                # It takes SIGTERM for itself, which on a TPU pod ends a program that has not asked for it.
                jax.config.update("jax_enable_preemption_service", False)
                jax.distributed.initialize()
        return original()

    bridge.__dict__["backends"] = backends
