"""A pod: a slice of several hosts as several processes of this machine, each with its host's devices.

On a TPU pod every host runs the same program, and JAX finds the others by itself as soon as the program asks for
devices. Here a process learns through its environment which host it is; the first thing in it that needs devices, or
that calls ``jax.distributed.initialize()`` as it would there, joins the others over the loopback interface.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Self

from t5x_harness.variables import POD_VARIABLE


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
        """Returns what tells a process of it."""
        return {
            POD_VARIABLE: f"{self.coordinator},{self.processes},{self.index}",
            "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
            "JAX_COORDINATOR_BIND_ADDRESS": self.coordinator,  # by default it is reached from other machines, too
        }

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self | None:
        """Reads what :meth:`variables` gave; None for a process that is alone."""
        if not (text := environment.get(POD_VARIABLE)):
            return None
        coordinator, processes, index = text.split(",")
        return cls(coordinator, int(processes), int(index))
