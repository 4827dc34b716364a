"""The machines of a job, and what they cost.

Vertex AI names TPUs in two ways. v2 and v3 are a machine type ``cloud-tpu`` with an accelerator type and a number of
*cores*: ``TPU_V3`` 32 is a v3-32, which has 16 chips. Newer ones are a machine type of a host, such as
``ct5lp-hightpu-4t``, with the slice's topology in chips.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from t5x_harness.slices import Slice, SliceError, get_slice

if TYPE_CHECKING:
    from google.cloud.aiplatform_v1 import types

__all__ = ["Machine", "MachineError"]

_CLOUD_TPU = "cloud-tpu"
_BY_CORES: Mapping[str, str] = MappingProxyType({"v2": "TPU_V2", "v3": "TPU_V3"})
_HOSTS: Mapping[str, str] = MappingProxyType({"v5e": "ct5lp-hightpu-{}t", "v6e": "ct6e-standard-{}t"})
_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "machine-type": "machine_type",
        "accelerator-type": "accelerator_type",
        "accelerator-count": "accelerator_count",
        "tpu-topology": "tpu_topology",
    }
)
_TPU_HOST = re.compile(r"ct\w+-\w+tpu-\d+t|ct\w+-standard-\d+t")


class MachineError(ValueError):
    """No such machine; the message says what there is."""


@dataclasses.dataclass(frozen=True)
class Machine:
    """The machine of a worker pool, in the terms of Vertex AI's MachineSpec.

    Attributes:
      machine_type: ``cloud-tpu``, ``ct5lp-hightpu-4t``, ``n1-standard-8``, …
      accelerator_type: ``TPU_V2``, ``TPU_V3``, ``NVIDIA_…``; None for machine types that say it themselves.
      accelerator_count: **cores** of TPU_V2 and TPU_V3; else accelerators of one machine; 0 where there is no type.
      tpu_topology: chips of the slice, as ``4x4``; only for machine types of TPU hosts.
    """

    machine_type: str
    accelerator_type: str | None = None
    accelerator_count: int = 0
    tpu_topology: str | None = None

    @classmethod
    def of_slice(cls, name: str) -> Machine:
        """The machine that makes up a TPU slice.

        Args:
          name: as :func:`t5x_harness.slices.get_slice` takes it: ``v3-32``, ``v5e:4x4``.

        Raises:
          MachineError: there is no such slice, or Vertex AI has no documented machine for it.
        """
        try:
            tpu = get_slice(name)
        except SliceError as error:
            raise MachineError(str(error)) from None
        generation = tpu.generation.name
        if generation in _BY_CORES:
            return cls(_CLOUD_TPU, _BY_CORES[generation], tpu.num_devices)
        if generation in _HOSTS:
            x, y, z = tpu.host_chips
            topology = "x".join(str(n) for n in tpu.topology[: tpu.generation.dimensions])
            return cls(_HOSTS[generation].format(x * y * z), tpu_topology=topology)
        raise MachineError(
            f"Vertex AI documents no machine for custom jobs on {name}: it has v2, v3, v5e and v6e; for another, "
            "name the machine itself: machine-type=…,tpu-topology=…"
        )

    @classmethod
    def parse(cls, text: str) -> Machine:
        """Reads a machine as users write it.

        Args:
          text: a slice (``v3-32``), an accelerator and its number (``TPU_V3:32``), or the keys of gcloud's
            worker-pool-spec (``machine-type=ct5lp-hightpu-4t,tpu-topology=4x4``).

        Raises:
          MachineError: it is none of these.
        """
        if "=" in text:
            return cls._of_keys(text)
        kind, colon, number = text.partition(":")
        if colon and kind.upper().startswith("TPU_"):
            return cls(_CLOUD_TPU, kind, _count(number, text))
        return cls.of_slice(text)

    @classmethod
    def _of_keys(cls, text: str) -> Machine:
        values: dict[str, str] = {}
        for part in text.split(","):
            key, _, value = part.partition("=")
            if key not in _KEYS or not value:
                raise MachineError(f"{text}: {part!r} is no KEY=VALUE with one of the keys {', '.join(_KEYS)}")
            values[_KEYS[key]] = value
        if "machine_type" not in values:
            raise MachineError(f"{text}: a machine needs a machine-type")
        count = _count(values.pop("accelerator_count"), text) if "accelerator_count" in values else 0
        return cls(accelerator_count=count, **values)

    @property
    def is_tpu(self) -> bool:
        """Whether it is a TPU's machine."""
        return self.machine_type == _CLOUD_TPU or bool(_TPU_HOST.fullmatch(self.machine_type))

    @property
    def slice(self) -> Slice | None:
        """The TPU slice that the machine makes up; None for other machines, and for a number that no slice has."""
        for generation, kind in _BY_CORES.items():
            if self.machine_type == _CLOUD_TPU and self.accelerator_type == kind:
                return _slice_or_none(f"{generation}-{self.accelerator_count}")
        for generation, host in _HOSTS.items():
            if self.tpu_topology and re.fullmatch(host.format(r"\d+"), self.machine_type):
                return _slice_or_none(f"{generation}:{self.tpu_topology}")
        return None

    def to_pb(self) -> types.MachineSpec:
        """The message.

        Raises:
          MachineError: there is no accelerator of this name.
        """
        from google.cloud.aiplatform_v1 import types

        known = types.AcceleratorType.__members__
        if self.accelerator_type is not None and self.accelerator_type not in known:
            same = [name for name in known if name.split("_")[0] == self.accelerator_type.upper().split("_")[0]]
            raise MachineError(f"there is no accelerator type {self.accelerator_type!r}: {', '.join(same or known)}")
        return types.MachineSpec(
            machine_type=self.machine_type,
            accelerator_type=self.accelerator_type,
            accelerator_count=self.accelerator_count or None,
            tpu_topology=self.tpu_topology,
        )

    def __str__(self) -> str:
        shown = [self.machine_type]
        if self.accelerator_type:
            cores = " cores" if self.accelerator_type in _BY_CORES.values() else ""
            shown.append(f"{self.accelerator_count} {self.accelerator_type}{cores}")
        if self.tpu_topology:
            shown.append(f"topology {self.tpu_topology}")
        return ", ".join(shown)


def _count(text: str, of: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise MachineError(f"{of}: {text!r} is no number of accelerators")
    return int(text)


def _slice_or_none(name: str) -> Slice | None:
    try:
        return get_slice(name)
    except SliceError:
        return None
