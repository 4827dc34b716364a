"""The machines of a job, and the chip-hours that it may use on them, which cost money even if the job fails.

Vertex AI names TPUs in two ways. v2 and v3 are the machine type ``cloud-tpu`` with an accelerator type and a number of
*cores*: ``TPU_V3`` 32 is a v3-32, which has 16 chips. Newer TPUs are named by the machine type of a host, such as
``ct5lp-hightpu-4t``, with the slice's topology in chips.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from t5x_harness.slices.slice import Slice, SliceError, get_slice

if TYPE_CHECKING:
    from google.cloud.aiplatform_v1 import types

_CLOUD_TPU = "cloud-tpu"
_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "machine-type": "machine_type",
        "accelerator-type": "accelerator_type",
        "accelerator-count": "accelerator_count",
        "tpu-topology": "tpu_topology",
    }
)


class MachineError(ValueError):
    """There is no such machine; the message lists those that exist."""


@dataclasses.dataclass(frozen=True)
class Machine:
    """The machine of a worker pool, in the terms of Vertex AI's MachineSpec.

    Attributes:
      machine_type: ``cloud-tpu``, ``ct5lp-hightpu-4t``, ``n1-standard-8``, …
      accelerator_type: ``TPU_V2``, ``TPU_V3``, ``NVIDIA_…``; None for machine types that imply it.
      accelerator_count: the number of **cores** of TPU_V2 and TPU_V3, otherwise of one machine's accelerators; 0
        without a type.
      tpu_topology: the slice's chips, as in ``4x4``; only for machine types of TPU hosts.
    """

    machine_type: str
    accelerator_type: str | None = None
    accelerator_count: int = 0
    tpu_topology: str | None = None

    @classmethod
    def of_slice(cls, name: str) -> Machine:
        """Returns the machine for a TPU slice.

        Args:
          name: a name that :func:`t5x_harness.slices.slice.get_slice` accepts: ``v3-32``, ``v5e:4x4``.

        Raises:
          MachineError: there is no such slice, or Vertex AI documents no machine for it.
        """
        from t5x_harness.google.vertex.validation.machines import machine_of_slice

        try:
            get_slice(name)
        except SliceError as error:
            raise MachineError(str(error)) from None
        if fields := machine_of_slice(name):
            return cls(**fields)
        raise MachineError(
            f"Vertex AI documents no machine for custom jobs on {name}; name the machine itself if you know of one, as "
            "machine-type=…,tpu-topology=…"
        )

    @classmethod
    def parse(cls, text: str) -> Machine:
        """Reads a machine as users write it.

        Args:
          text: a slice (``v3-32``), an accelerator and its number (``TPU_V3:32``), or the keys of gcloud's
            worker-pool-spec (``machine-type=ct5lp-hightpu-4t,tpu-topology=4x4``).

        Raises:
          MachineError: the text is none of these.
        """
        if "=" in text:
            return cls._of_keys(text)
        kind, colon, number = text.partition(":")
        if colon and kind.upper().startswith("TPU_"):
            return cls(_CLOUD_TPU, kind, _count(number, text))
        return cls.of_slice(text)

    @classmethod
    def of_pb(cls, message: types.MachineSpec) -> Machine:
        """Reads a message; the inverse of :meth:`to_pb`."""
        accelerator = message.accelerator_type.name if message.accelerator_type else None
        return cls(message.machine_type, accelerator, message.accelerator_count, message.tpu_topology or None)

    @classmethod
    def _of_keys(cls, text: str) -> Machine:
        values: dict[str, str] = {}
        for part in text.split(","):
            key, _, value = part.partition("=")
            if key not in _KEYS or not value:
                raise MachineError(f"{text}: {part!r} is not a KEY=VALUE with one of the keys {', '.join(_KEYS)}")
            values[_KEYS[key]] = value
        if "machine_type" not in values:
            raise MachineError(f"{text}: a machine needs a machine-type")
        count = _count(values.pop("accelerator_count"), text) if "accelerator_count" in values else 0
        return cls(accelerator_count=count, **values)

    @property
    def is_tpu(self) -> bool:
        """Whether the machine has TPUs."""
        from t5x_harness.google.vertex.validation.machine_types import generation_of

        return generation_of(self) is not None

    @property
    def chips(self) -> int:
        """The number of TPU chips; 0 for other machines, and if the number is not known."""
        from t5x_harness.google.vertex.validation.machine_types import chips_of

        return chips_of(self)

    @property
    def slice(self) -> Slice | None:
        """The TPU slice; None for other machines, and for a number of cores that no slice has."""
        from t5x_harness.google.vertex.validation.machine_types import slice_of

        return slice_of(self)

    def to_pb(self) -> types.MachineSpec:
        """Returns the message.

        Raises:
          MachineError: there is no accelerator with this name.
        """
        from google.cloud.aiplatform_v1 import types

        if self.accelerator_type is not None and self.accelerator_type not in types.AcceleratorType.__members__:
            from t5x_harness.google.vertex.validation.judging import accelerator_meant

            meant = accelerator_meant(self.accelerator_type)
            raise MachineError(f"there is no accelerator type {self.accelerator_type!r}{f': {meant}' if meant else ''}")
        return types.MachineSpec(
            machine_type=self.machine_type,
            accelerator_type=self.accelerator_type,
            accelerator_count=self.accelerator_count or None,
            tpu_topology=self.tpu_topology,
        )

    def __str__(self) -> str:
        shown = [self.machine_type]
        if self.accelerator_type:
            cores = " cores" if self.machine_type == _CLOUD_TPU else ""
            shown.append(f"{self.accelerator_count} {self.accelerator_type}{cores}")
        if self.tpu_topology:
            shown.append(f"topology {self.tpu_topology}")
        return ", ".join(shown)


def _count(text: str, of: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise MachineError(f"{of}: {text!r} is not a number of accelerators")
    return int(text)


_OPTION = "--tpu-max-chip-hours (pytest: --t5x-tpu-max-chip-hours)"
_HOUR = 3600


class ChipHoursError(ValueError):
    """A job could use more chip-hours than allowed; the message has the calculation and the possible changes."""


@dataclasses.dataclass(frozen=True)
class ChipHours:
    """The maximum chip-hours of a job: all chips of its slice until its deadline.

    Attributes:
      machine: the machine, or the name of its slice.
      chips: the number of its TPU chips; 0 for a machine without TPUs, None if the number is not known.
      seconds: the job's timeout.
    """

    machine: str
    chips: int | None
    seconds: int

    @classmethod
    def of(cls, machine: Machine, seconds: int) -> ChipHours:
        """Returns the chip-hours that a machine can use in a number of seconds."""
        chips = machine.chips or (None if machine.is_tpu else 0)
        return cls(str(machine.slice or machine), chips, seconds)

    @property
    def total(self) -> float:
        """The product of chips and hours."""
        return (self.chips or 0) * self.seconds / _HOUR

    def require(self, most: float) -> None:
        """Checks that the job cannot use more than ``most`` chip-hours.

        Raises:
          ChipHoursError: the job can use more.
        """
        if self.chips is None:
            raise ChipHoursError(f"{self}: it is not known whether they exceed the {most:g} of {_OPTION}")
        if self.total > most:
            hours, enough = most / self.chips, -(-self.total // 0.01) / 100  # rounded up
            raise ChipHoursError(
                f"{self}: more than the {most:g} that {_OPTION} allows. Give --tpu-max-chip-hours={enough:g}, a "
                f"timeout of at most {hours:.2g} h, or a smaller slice"
            )

    def __str__(self) -> str:
        hours = f"{self.seconds / _HOUR:g} h" if self.seconds >= _HOUR else f"{self.seconds / 60:g} min"
        limit = f"at most {hours}"
        if self.chips is None:
            return f"{self.machine}, {limit}: chip-hours are not known, as its number of chips is not"
        if not self.chips:
            return f"{self.machine}, {limit}: no TPU, no chip-hours"
        return f"{self.machine}: {self.chips} chips x {limit} = {self.total:g} chip-hours"
