"""Which TPU slice a machine spec asks for."""

from __future__ import annotations

import math
from typing import Any

from t5x_harness.google.vertex.validation.machine_types import (
    CLOUD_TPU,
    MachineType,
    accelerator_name,
    cloud_tpus,
    machine_types,
)
from t5x_harness.slices.slice import SliceError, get_slice


def slice_of(machine_spec: Any) -> str | None:
    """Returns the slice's name, ``v3-32`` or ``v5e-16``, as :func:`get_slice` takes it.

    Args:
      machine_spec: a ``MachineSpec``, as the SDK's protobuf or proto-plus message, or anything with its attributes
        ``machine_type``, ``accelerator_type``, ``accelerator_count`` and ``tpu_topology``.

    Returns:
      None for a machine without a TPU, for a spec that Vertex AI does not take, and for a generation that the harness
      has no slices of.
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
    try:
        return get_slice(name).name
    except SliceError:
        return None


def generation_of(machine_spec: Any) -> str | None:
    """Returns the TPU generation that is asked for, ``v3``, or None.

    The count or topology may be one that does not exist.
    """
    machine = _tpu_machine(machine_spec)
    if machine is not None:
        return machine.generation
    accelerator = cloud_tpus().get(accelerator_name(machine_spec))
    return accelerator.generation if accelerator and machine_spec.machine_type == CLOUD_TPU else None


def chips_of(machine_spec: Any) -> int:
    """Returns TPU chips that are asked for; 0 without, and for a spec that Vertex AI does not take."""
    machine = _tpu_machine(machine_spec)
    if machine is not None:
        return _chips(machine_spec.tpu_topology) if machine_spec.tpu_topology in machine.topologies else 0
    name = slice_of(machine_spec)
    return get_slice(name).num_chips if name else 0


def _tpu_machine(machine_spec: Any) -> MachineType | None:
    machine = machine_types().get(machine_spec.machine_type)
    return machine if machine is not None and machine.generation else None


def _chips(topology: str) -> int:
    return math.prod(int(side) for side in topology.split("x"))
