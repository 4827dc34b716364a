"""The machines of ``machines.toml`` as values."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from t5x_harness.google.vertex.validation.rules import read_table

CLOUD_TPU = "cloud-tpu"


@dataclasses.dataclass(frozen=True)
class MachineType:
    """A type of machine that custom training takes.

    Attributes:
      name: ``n1-standard-4``.
      counts: the numbers of each accelerator that it takes; empty for ``cloud-tpu``, whose counts are slices.
      bare: whether it may be used without an accelerator.
      generation: of its TPUs, ``v5e``; None without, and for ``cloud-tpu``, which has several.
      chips: TPU chips of one VM.
      topologies: that a slice of such VMs may have, in chips.
    """

    name: str
    counts: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    bare: bool = True
    generation: str | None = None
    chips: int = 0
    topologies: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class CloudTpu:
    """An accelerator of the machine type ``cloud-tpu``; numbers are cores.

    Attributes:
      generation: ``v3``.
      single: cores of one board.
      pod: cores of the smallest slice of several boards.
      multiple: whether larger slices have to be a multiple of it.
    """

    generation: str
    single: int
    pod: int
    multiple: bool


def _tables() -> Mapping[str, Any]:
    return read_table(__package__, "machines.toml")


@functools.cache
def machine_types() -> Mapping[str, MachineType]:
    """Returns every machine type of custom training by name."""
    table = _tables()["machines"]
    found = [MachineType(f"{series}-{size}") for series, sizes in table["plain"].items() for size in sizes]
    found += [MachineType(name, _counts(counts)) for name, counts in table["gpu"].items()]
    found += [MachineType(name, _counts(counts), bare=False) for name, counts in table["built_in_gpu"].items()]
    found.append(MachineType(CLOUD_TPU, bare=False))
    for name, about in table["tpu"].items():
        found.append(MachineType(name, {}, True, about["generation"], about["chips"], tuple(about["topologies"])))
    return {machine.name: machine for machine in found}


@functools.cache
def cloud_tpus() -> Mapping[str, CloudTpu]:
    return {name: CloudTpu(**about) for name, about in _tables()["machines"]["cloud_tpu"].items()}


def tpu_regions(generation: str | None) -> tuple[str, ...]:
    """Regions that are known to have TPUs of a generation; empty for one of which nothing is known."""
    return tuple(_tables()["regions"].get(generation, ()))


def may_have_tpu(region: str, generation: str | None) -> bool:
    """Returns whether a region that is not listed for a generation may have its TPUs.

    It has others, and the list has gaps.
    """
    table = _tables()["regions"]
    lists = [regions for name, regions in table.items() if name not in ("source", "complete")]
    return generation not in table["complete"] and any(region in regions for regions in lists)


def accelerator_name(machine_spec: Any) -> str:
    """Returns the name of a machine spec's accelerator type, ``TPU_V3``.

    Args:
      machine_spec: a ``MachineSpec``, as the SDK's protobuf or proto-plus message, or anything with its attributes.

    Returns:
      Empty for a spec without, and ``str`` of the number for one that the API does not have.
    """
    value = getattr(machine_spec, "accelerator_type", None) or ""
    if not isinstance(value, int):
        return str(value)
    if hasattr(value, "name"):
        return str(value.name)
    known = machine_spec.DESCRIPTOR.fields_by_name["accelerator_type"].enum_type.values_by_number
    return str(known[value].name) if value in known else str(value)


def training_regions() -> tuple[str, ...]:
    return tuple(_tables()["training_regions"]["names"])


def _counts(table: Mapping[str, list[int]]) -> dict[str, tuple[int, ...]]:
    return {accelerator: tuple(counts) for accelerator, counts in table.items()}
