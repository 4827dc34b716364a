"""What JAX ran on in a job, as far as that is known: on the TPU that the job asked for, or on the CPU beside it."""

from __future__ import annotations

import dataclasses
import math
import re

_CPU, _TPU = "cpu", "TPU"
_THE_CPU = "the CPU"
_NOT_SAID = "not said in its log"

# T5X's mesh of TPUs, of several slices, and, where model_parallel_submesh is bound, of CPUs; each in a line, and its
# shape in a later one. With num_partitions alone, T5X says nothing of a mesh of CPUs.
_MESH = re.compile(r"global_mesh devices: \[+(?P<kind>\w+?)Device\(")
_SHAPE = re.compile(r"global_mesh devices shape: \((?P<shape>[\d, ]+)\)")
# The same of the embedded runtime.
_EMBEDDED_MESH = re.compile(r"The mesh has (?P<number>\d+) devices, the first is (?P<kind>\w+?)Device\(")
# On this machine T5X is shown the slice's devices, each of which is a CPU device.
_KINDS = {"Cpu": _CPU, "VirtualTpu": _CPU, "Tpu": _TPU}

# What JAX says where it takes what it finds: why it has no TPU; that there are chips, but no libtpu; and what it said
# before it looked for chips. It says none of it where its platforms are set.
_FELL_BACK = re.compile(
    r"Unable to initialize backend 'tpu': .+"
    r"|A Google TPU may be present on this machine, but .+ Falling back to cpu\."
    r"|No GPU/TPU found, falling back to CPU\."
)


@dataclasses.dataclass(frozen=True)
class RanOn:
    """What JAX ran on in a job.

    Attributes:
      devices: such as ``8 x TPU v3``, or why there were none; empty if nothing is known of them.
      platform: of these devices: ``tpu``, ``cpu``, …; empty if there are none. Also ``cpu`` if all that is known is
        that JAX found no TPU, which leaves the CPU of a TPU's machine.
      platform_set: whether JAX's platforms were set, as by JAX_PLATFORMS; else it takes the best it finds. None if
        that is not known.
      reason: why it found no TPU, in JAX's words; empty if it said nothing.
      unknown: why nothing is known of the devices, if nothing is.
    """

    devices: str = ""
    platform: str = ""
    platform_set: bool | None = None
    reason: str = ""
    unknown: str = _NOT_SAID

    @property
    def fell_back(self) -> bool:
        """Whether it ran on the CPU, and nothing is known to have asked for that."""
        return self.platform == _CPU and not self.platform_set

    def about(self, *, tpu: bool, emulated: bool) -> str:
        """Says in words what it ran on.

        Args:
          tpu: whether the job's machine has a TPU.
          emulated: whether the job was sent to the emulated Vertex AI.
        """
        if not tpu or self.platform != _CPU:
            return self.devices or self.unknown
        devices = self.devices or _THE_CPU
        if emulated:
            return f"{devices}: the emulated Vertex AI has no TPU"
        why = {True: ", as JAX was set to take the CPU", False: ", as JAX found no TPU", None: ""}[self.platform_set]
        return f"{devices}: nothing ran on the TPU{why}"

    def no_tpu(self, job: str, machine: str) -> tuple[str, str]:
        """Returns what is wrong with a job that :attr:`fell_back` on a TPU's machine, and the fix.

        Args:
          job: its display name.
          machine: that it asked for.
        """
        on = f"it ran on {self.devices or _THE_CPU}, and on no TPU: "
        doctor = "t5x-harness doctor --image, run inside it, says what is wrong"
        if self.platform_set is None:
            return (
                f"{on}T5X in the job {job} made its mesh of the CPU of {machine}",
                "leave out what has JAX take the CPU: JAX_PLATFORMS in the image, jax_platforms in a module, or the "
                f"partitioner's backend. If there is none, the image needs jax[tpu], with its libtpu: {doctor}",
            )
        reason = f": {self.reason}" if self.reason else ""
        return (
            f"{on}JAX in the job {job} found none on {machine}, and fell back to the CPU{reason}",
            f"the image needs jax[tpu], with its libtpu: {doctor}",
        )


UNKNOWN = RanOn()
"""Of a log that says nothing, or was not read."""


class LoggedDevices:
    """What a T5X job ran on, out of the lines of its log.

    Of several hosts each writes the same. One mesh of TPUs is enough to have run on them, whatever else a process of
    the job says.
    """

    def __init__(self) -> None:
        self._kind = ""
        self._number = 0
        self._reason = ""

    def read(self, text: str) -> None:
        """Takes a line."""
        if found := _MESH.search(text):
            self._take(found["kind"])
        elif found := _EMBEDDED_MESH.search(text):
            self._take(found["kind"], int(found["number"]))
        elif self._kind and not self._number and (found := _SHAPE.search(text)):
            self._number = math.prod(int(side) for side in found["shape"].split(",") if side.strip())
        elif found := _FELL_BACK.search(text):
            self._reason = self._reason or found[0]

    @property
    def ran_on(self) -> RanOn:
        """What the lines so far say."""
        kind = _KINDS.get(self._kind, self._kind)
        devices = f"{self._number} x {kind}" if self._number else kind
        if kind and kind != _CPU:
            return RanOn(devices, kind.lower())
        if self._reason:
            return RanOn(devices, _CPU, platform_set=False, reason=self._reason)
        return RanOn(devices, kind)

    def _take(self, kind: str, number: int = 0) -> None:
        if not self._kind or (_KINDS.get(kind) == _TPU and self._kind != kind):
            self._kind, self._number = kind, number
