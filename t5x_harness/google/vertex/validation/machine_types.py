"""The machines of ``machines.toml`` as values, and the TPU slices that machine specs ask for."""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

from t5x_harness.google.vertex.validation.rules import read_table
from t5x_harness.slices.slice import Slice, SliceError, get_slice

CLOUD_TPU = "cloud-tpu"


@dataclasses.dataclass(frozen=True)
class MachineType:
    """A machine type of custom training.

    Attributes:
      name: its name, such as ``n1-standard-4``.
      counts: the allowed numbers of each accelerator; empty for ``cloud-tpu``, whose counts are slices.
      bare: whether it may be used without an accelerator.
      generation: the generation of its TPUs, such as ``v5e``; None without TPUs, and for ``cloud-tpu``, which has
        several.
      chips: the number of TPU chips of one VM.
      topologies: the topologies that a slice of such VMs may have, in chips.
    """

    name: str
    counts: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    bare: bool = True
    generation: str | None = None
    chips: int = 0
    topologies: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class CloudTpu:
    """An accelerator of the machine type ``cloud-tpu``, whose numbers are cores.

    Attributes:
      generation: its generation, such as ``v3``.
      single: the number of cores of one board.
      pod: the number of cores of the smallest slice of several boards.
      multiple: whether larger slices have to be a multiple of ``pod``.
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
    """Returns the regions that are known to have TPUs of a generation; none for an unfamiliar generation."""
    return tuple(_tables()["regions"].get(generation, ()))


def may_have_tpu(region: str, generation: str | None) -> bool:
    """Returns whether a region that is not listed for a generation may have its TPUs.

    It may if it has other TPUs, and the list for the generation is not known to be complete.
    """
    table = _tables()["regions"]
    lists = [regions for name, regions in table.items() if name not in ("source", "complete")]
    return generation not in table["complete"] and any(region in regions for regions in lists)


def accelerator_name(machine_spec: Any) -> str:
    """Returns the name of a machine spec's accelerator type, such as ``TPU_V3``; for the argument see :func:`slice_of`.

    It is empty for a spec without an accelerator, and the number as text for a type that the API does not have.
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


def slice_of(machine_spec: Any) -> Slice | None:
    """Returns the TPU slice that a machine spec asks for.

    Args:
      machine_spec: a ``MachineSpec``, as the SDK's protobuf or proto-plus message, or anything with its attributes
        ``machine_type``, ``accelerator_type``, ``accelerator_count`` and ``tpu_topology``.

    Returns:
      None for a machine without a TPU, a spec that Vertex AI does not accept, and a generation without known slices.
    """
    generation = generation_of(machine_spec)
    if generation is None:
        return None
    machine = _tpu_machine(machine_spec)
    if machine is None:
        name = f"{generation}-{machine_spec.accelerator_count}"
    elif machine_spec.tpu_topology in machine.topologies:
        name = f"{generation}-{_chips(machine_spec.tpu_topology)}"
    else:
        return None
    return find_slice(name)


def find_slice(name: str) -> Slice | None:
    """Returns the slice of a name, or None if Cloud TPU has no such slice."""
    try:
        return get_slice(name)
    except SliceError:
        return None


def generation_of(machine_spec: Any) -> str | None:
    """Returns the TPU generation that a machine spec asks for, such as ``v3``, or None.

    The count or topology need not exist.
    """
    machine = _tpu_machine(machine_spec)
    if machine is not None:
        return machine.generation
    accelerator = cloud_tpus().get(accelerator_name(machine_spec))
    return accelerator.generation if accelerator and machine_spec.machine_type == CLOUD_TPU else None


def chips_of(machine_spec: Any) -> int:
    """Returns the number of TPU chips that a spec asks for: 0 without a TPU, or if Vertex AI refuses the spec."""
    machine = _tpu_machine(machine_spec)
    if machine is not None:
        return _chips(machine_spec.tpu_topology) if machine_spec.tpu_topology in machine.topologies else 0
    found = slice_of(machine_spec)
    return found.num_chips if found else 0


def _tpu_machine(machine_spec: Any) -> MachineType | None:
    machine = machine_types().get(machine_spec.machine_type)
    return machine if machine is not None and machine.generation else None


def _chips(topology: str) -> int:
    return math.prod(int(side) for side in topology.split("x"))
