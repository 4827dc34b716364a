"""A pod: a slice of several hosts as several processes of this machine, each with its host's devices.

On a TPU pod, every host runs the same program, and JAX finds the other hosts as soon as the program asks for devices.
Here the environment of a process says which host it is. The first code that needs devices, or that calls
``jax.distributed.initialize()`` as on a pod, joins the others over the loopback interface.
"""

import dataclasses
from collections.abc import Mapping
from typing import Self

from t5x_harness.variables import POD_VARIABLE


@dataclasses.dataclass(frozen=True)
class Pod:
    """The place of a process among the processes of a slice.

    Attributes:
      coordinator: ``HOST:PORT`` on which process 0 coordinates them.
      processes: their number, which is the number of the slice's hosts.
      index: the number of this process, from 0.
    """

    coordinator: str
    processes: int
    index: int

    def variables(self) -> dict[str, str]:
        """Returns the environment variables that tell a process its place."""
        return {
            POD_VARIABLE: f"{self.coordinator},{self.processes},{self.index}",
            "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
            "JAX_COORDINATOR_BIND_ADDRESS": self.coordinator,  # by default, other machines could also reach it
        }

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self | None:
        """Reads the variables of :meth:`variables`; returns None for a process that is alone."""
        if not (text := environment.get(POD_VARIABLE)):
            return None
        coordinator, processes, index = text.split(",")
        return cls(coordinator, int(processes), int(index))
