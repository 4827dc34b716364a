"""Checks of machines and of their accelerators."""

import difflib
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

from t5x_harness.google.vertex.validation.checks import Values, pool_check
from t5x_harness.google.vertex.validation.machine_types import (
    CLOUD_TPU,
    CloudTpu,
    MachineType,
    accelerator_name,
    cloud_tpus,
    find_slice,
    machine_types,
)
from t5x_harness.google.vertex.validation.rules import Check, PoolSpec, SpecRule
from t5x_harness.slices.slice import slice_names

_COMPUTE_ENGINE_FORM = re.compile(r"(?P<series>[a-z]+\d+[a-z]*)-[a-z]+-\d+[a-z]*(-[a-z]+)?")


def machine_of_slice(name: str) -> Mapping[str, Any]:
    """Returns the fields of the machine spec for a slice such as ``v3-32``.

    There are none for a slice that custom training does not have, or for any other name.
    """
    wanted = find_slice(name)
    if wanted is None:
        return {}
    generation = wanted.generation.name
    for accelerator, about in cloud_tpus().items():
        if about.generation == generation and _fits(about, wanted.num_devices):
            count = wanted.num_devices
            return {"machine_type": CLOUD_TPU, "accelerator_type": accelerator, "accelerator_count": count}
    topology = "x".join(str(side) for side in wanted.topology[: wanted.generation.dimensions])
    fitting = [m for m in machine_types().values() if m.generation == generation and topology in m.topologies]
    if not fitting:
        return {}
    # Eight chips are one VM of eight or two of four; Cloud TPU's slice of that name is the former.
    return {"machine_type": max(fitting, key=lambda machine: machine.chips).name, "tpu_topology": topology}


def machine_text(name: str) -> str:
    """Returns the fields as ``machine_type cloud-tpu, accelerator_type TPU_V3, …``; empty for no machine."""
    return ", ".join(f"{field} {value}" for field, value in machine_of_slice(name).items())


def _machine_check(broken: Callable[[PoolSpec, MachineType], Values | None]) -> Check:
    """Registers a check of the pools whose machine type is known."""

    @functools.wraps(broken)
    def check(pool: PoolSpec, _rule: SpecRule) -> Values | None:
        machine = machine_types().get(pool.machine.machine_type)
        return None if machine is None else broken(pool, machine)

    return pool_check(check)


@pool_check
def machine_required(pool: PoolSpec, _rule: SpecRule) -> Values | None:
    """Checks that each pool specifies its machine type."""
    is_missing = pool.message.ByteSize() and not pool.machine.machine_type and not pool.job.spec.persistent_resource_id
    return {} if is_missing else None


@pool_check
def machine_unknown(pool: PoolSpec, _rule: SpecRule) -> Values | None:
    """Checks that a machine can have this type: it is neither a slice's name nor a size that its series lacks."""
    given = pool.machine.machine_type
    if not given or given in machine_types() or _is_unlisted(given):
        return None
    if meant := machine_text(given):
        return {"value": given, "fix": f": {given} is a slice; write {meant}"}
    near = difflib.get_close_matches(given, machine_types(), n=2, cutoff=0.7)
    return {"value": given, "fix": f": did you mean {' or '.join(near)}" if near else ""}


@pool_check
def machine_unlisted(pool: PoolSpec, _rule: SpecRule) -> Values | None:
    """Checks that the series of the machine type is listed; the service may well accept a newer one."""
    given = pool.machine.machine_type
    return {"value": given} if given and given not in machine_types() and _is_unlisted(given) else None


@pool_check
def accelerator_half(pool: PoolSpec, _rule: SpecRule) -> Values | None:
    """Checks that there is neither a type without a count nor a count without a type."""
    name, count = accelerator_name(pool.machine), pool.machine.accelerator_count
    if bool(name) == bool(count):
        return None
    fix = f"{name} without a count" if name else f"{count} of no type"
    wanted = _wanted(pool.machine)
    return {"fix": f"{fix}; {pool.machine.machine_type} takes {wanted}" if wanted else fix}


@_machine_check
def accelerator_required(pool: PoolSpec, machine: MachineType) -> Values | None:
    """Checks that a machine that is only used with accelerators has some."""
    if machine.bare or accelerator_name(pool.machine) or pool.machine.accelerator_count:
        return None
    return {"machine": machine.name, "wanted": _wanted(pool.machine)}


@pool_check
def accelerator_number_unknown(pool: PoolSpec, _rule: SpecRule) -> Values | None:
    """Checks that the accelerator's number is one that the API has."""
    name = accelerator_name(pool.machine)
    return {"value": name} if name.lstrip("-").isdecimal() else None


@_machine_check
def accelerator_unsupported(pool: PoolSpec, machine: MachineType) -> Values | None:
    """Checks that the machine takes accelerators of this type."""
    name = accelerator_name(pool.machine)
    taken = cloud_tpus() if machine.name == CLOUD_TPU else machine.counts
    if not name or name.lstrip("-").isdecimal() or name in taken:
        return None
    return {"machine": machine.name, "value": name, "fix": _accelerator_fix(name)}


@_machine_check
def tpu_count(pool: PoolSpec, machine: MachineType) -> Values | None:
    """Checks that the count of a ``cloud-tpu`` is a documented number of cores."""
    name, count = accelerator_name(pool.machine), pool.machine.accelerator_count
    about = _cloud_tpu(machine, name)
    if about is None or not count or _fits(about, count):
        return None
    known = find_slice(f"{about.generation}-{2 * count}")
    fix = f": a {known} has {count} chips but {2 * count} cores, so write {2 * count}" if known else ""
    return {"accelerator": name, "wanted": f"{_sizes(about)}, …", "value": count, "fix": fix}


@_machine_check
def tpu_slice(pool: PoolSpec, machine: MachineType) -> Values | None:
    """Checks that a count that the documentation allows belongs to an existing slice."""
    name, count = accelerator_name(pool.machine), pool.machine.accelerator_count
    about = _cloud_tpu(machine, name)
    if about is None or not _fits(about, count) or find_slice(f"{about.generation}-{count}"):
        return None
    return {"accelerator": name, "value": count, "wanted": f"there are {_sizes(about, everything=True)}"}


@_machine_check
def gpu_count(pool: PoolSpec, machine: MachineType) -> Values | None:
    """Checks that the machine takes this number of GPUs of the type."""
    name, count = accelerator_name(pool.machine), pool.machine.accelerator_count
    allowed = machine.counts.get(name)
    if not count or not allowed or count in allowed:
        return None
    return {"machine": machine.name, "wanted": " or ".join(map(str, allowed)), "accelerator": name, "value": count}


@_machine_check
def topology_required(pool: PoolSpec, machine: MachineType) -> Values | None:
    """Checks that a machine whose slices are named by topology has one."""
    if not machine.topologies or pool.machine.tpu_topology:
        return None
    return {"machine": machine.name, "wanted": ", ".join(machine.topologies)}


@_machine_check
def topology_unsupported(pool: PoolSpec, machine: MachineType) -> Values | None:
    """Checks that the machine is available in this topology."""
    given = pool.machine.tpu_topology
    if not given or not machine.topologies or given in machine.topologies:
        return None
    others = [other for other in machine_types().values() if other.generation == machine.generation]
    fitting = [other.name for other in others if given in other.topologies]
    wanted = f"{', '.join(fitting)} has" if fitting else f"there are {', '.join(machine.topologies)}"
    return {"machine": machine.name, "value": given, "wanted": wanted}


@_machine_check
def topology_unused(pool: PoolSpec, machine: MachineType) -> Values | None:
    """Checks that a machine whose slices are not named by topology has none."""
    if not pool.machine.tpu_topology or machine.topologies:
        return None
    fix = "its slices are asked for by accelerator_count" if machine.name == CLOUD_TPU else "it has no TPU"
    return {"machine": machine.name, "fix": fix}


def _cloud_tpu(machine: MachineType, accelerator: str) -> CloudTpu | None:
    return cloud_tpus().get(accelerator) if machine.name == CLOUD_TPU else None


def _fits(about: CloudTpu, count: int) -> bool:
    if count == about.single:
        return True
    return count >= about.pod and not (about.multiple and count % about.pod)


def _is_unlisted(machine_type: str) -> bool:
    """Returns whether the name has Compute Engine's form, with a series that has no listed machine."""
    match = _COMPUTE_ENGINE_FORM.fullmatch(machine_type)
    return match is not None and not any(name.startswith(f"{match['series']}-") for name in machine_types())


def _wanted(machine_spec: Any) -> str:
    """Returns, in words, the accelerators that a machine takes; empty for an unknown machine."""
    machine = machine_types().get(machine_spec.machine_type)
    if machine is None:
        return ""
    if machine.name == CLOUD_TPU:
        return " or ".join(f"{name} with {_sizes(about)}, … cores" for name, about in cloud_tpus().items())
    if machine.topologies:
        return f"no accelerator_type, but tpu_topology {', '.join(machine.topologies)}"
    if not machine.counts:
        return "none"
    return " or ".join(f"{'/'.join(map(str, counts))} {name}" for name, counts in machine.counts.items())


def _accelerator_fix(name: str) -> str:
    if name in cloud_tpus():
        return f"{name} goes with machine_type {CLOUD_TPU}"
    fitting = [other.name for other in machine_types().values() if name in other.counts]
    if fitting:
        shown = ", ".join(fitting[:3]) + (", …" if len(fitting) > 3 else "")
        return f"{name} goes with machine_type {shown}"
    if name == "TPU_V5_LITEPOD":
        return "TPU v5e is asked for with machine_type ct5lp-hightpu-1t, -4t or -8t and tpu_topology alone"
    if name == "TPU_V4_POD":
        return "custom training documents no machine for TPU v4"
    return f"custom training documents no machine for {name}"


def _sizes(about: CloudTpu, *, everything: bool = False) -> str:
    names = [name.partition("-") for name in slice_names()]
    sizes = [size for generation, _, size in names if generation == about.generation and _fits(about, int(size))]
    return ", ".join(sizes if everything else sizes[:3])
