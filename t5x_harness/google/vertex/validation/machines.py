"""Checks of machines and of what is attached to them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Any

from t5x_harness.google.vertex.validation.checks import check
from t5x_harness.google.vertex.validation.machine_types import (
    CLOUD_TPU,
    CloudTpu,
    Machine,
    accelerator_name,
    cloud_tpus,
    machine_types,
)
from t5x_harness.google.vertex.validation.rules import Breach, SpecRule
from t5x_harness.google.vertex.validation.subject import Pool, Subject
from t5x_harness.slices.slice import Slice, SliceError, get_slice, slice_names

_COMPUTE_ENGINE_FORM = re.compile(r"(?P<series>[a-z]+\d+[a-z]*)-[a-z]+-\d+[a-z]*(-[a-z]+)?")


def is_slice(name: str) -> bool:
    """Returns whether Cloud TPU has a slice of that name."""
    return _slice(name) is not None


def machine_for_slice(name: str) -> str:
    """Returns what to write in a machine spec for a slice: ``machine_type cloud-tpu, accelerator_type TPU_V3, …``.

    Args:
      name: of a slice, ``v3-32``.

    Returns:
      Empty for a slice that custom training does not have, and for what is not a slice.
    """
    wanted = _slice(name)
    if wanted is None:
        return ""
    for accelerator, about in cloud_tpus().items():
        if about.generation == wanted.generation.name and _fits(about, wanted.num_devices):
            return f"machine_type {CLOUD_TPU}, accelerator_type {accelerator}, accelerator_count {wanted.num_devices}"
    topology = "x".join(str(side) for side in wanted.topology[: wanted.generation.dimensions])
    generation = wanted.generation.name
    fitting = [m for m in machine_types().values() if m.generation == generation and topology in m.topologies]
    if not fitting:
        return ""
    # Eight chips are one VM of eight or two of four; Cloud TPU's slice of that name is the former.
    return f"machine_type {max(fitting, key=lambda machine: machine.chips).name}, tpu_topology {topology}"


@check
def machine_required(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that each pool says what machines it has."""
    for pool in subject.pools:
        if pool.message.ByteSize() and not pool.machine.machine_type and not subject.spec.persistent_resource_id:
            yield f"{pool.path}.machine_spec.machine_type", {}


@check
def machine_unknown(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that the machine type is not a name that no machine has.

    A slice's, or a size that its series does not have.
    """
    for pool in subject.pools:
        given = pool.machine.machine_type
        if given and given not in machine_types() and not _is_unlisted(given):
            yield f"{pool.path}.machine_spec.machine_type", {"value": given, "fix": _machine_meant(given)}


@check
def machine_unlisted(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that the machine type is of a series that the list has; a newer one may well be taken."""
    for pool in subject.pools:
        given = pool.machine.machine_type
        if given and given not in machine_types() and _is_unlisted(given):
            yield f"{pool.path}.machine_spec.machine_type", {"value": given}


@check
def accelerator_half(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that there is neither a type without a count nor a count without a type."""
    for pool in subject.pools:
        name, count = accelerator_name(pool.machine), pool.machine.accelerator_count
        if bool(name) != bool(count):
            at = f"{pool.path}.machine_spec.accelerator_type"
            fix = f"{name} without a count" if name else f"{count} of no type"
            wanted = _wanted(pool.machine)
            yield at, {"fix": f"{fix}; {pool.machine.machine_type} takes {wanted}" if wanted else fix}


@check
def accelerator_required(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that a machine that is only used with accelerators has some."""
    for pool, machine in _known(subject):
        if not machine.bare and not accelerator_name(pool.machine) and not pool.machine.accelerator_count:
            values = {"machine": machine.name, "wanted": _wanted(pool.machine)}
            yield f"{pool.path}.machine_spec.accelerator_type", values


@check
def accelerator_number_unknown(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that the accelerator's number is one that the API has."""
    for pool in subject.pools:
        name = accelerator_name(pool.machine)
        if name.lstrip("-").isdecimal():
            yield f"{pool.path}.machine_spec.accelerator_type", {"value": name}


@check
def accelerator_unsupported(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that the machine takes accelerators of that type."""
    for pool, machine in _known(subject):
        name = accelerator_name(pool.machine)
        if name and not name.lstrip("-").isdecimal() and name not in _accelerators(machine):
            values = {"machine": machine.name, "value": name, "fix": _accelerator_fix(machine, name)}
            yield f"{pool.path}.machine_spec.accelerator_type", values


@check
def tpu_count(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that the count of a ``cloud-tpu`` is of its cores, and one that is documented."""
    for pool, name, about in _cloud_tpus(subject):
        count = pool.machine.accelerator_count
        if count and not _fits(about, count):
            known = (
                get_slice(f"{about.generation}-{2 * count}") if is_slice(f"{about.generation}-{2 * count}") else None
            )
            fix = f": a {known} has {count} chips but {2 * count} cores, so write {2 * count}" if known else ""
            values = {"accelerator": name, "wanted": f"{_sizes(about)}, …", "value": count, "fix": fix}
            yield f"{pool.path}.machine_spec.accelerator_count", values


@check
def tpu_slice(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that a count that the documentation allows is that of a slice."""
    for pool, name, about in _cloud_tpus(subject):
        count = pool.machine.accelerator_count
        if _fits(about, count) and not is_slice(f"{about.generation}-{count}"):
            values = {"accelerator": name, "value": count, "wanted": f"there are {_sizes(about, everything=True)}"}
            yield f"{pool.path}.machine_spec.accelerator_count", values


@check
def gpu_count(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that the machine takes that many of the GPU."""
    for pool, machine in _known(subject):
        name, count = accelerator_name(pool.machine), pool.machine.accelerator_count
        allowed = machine.counts.get(name)
        if count and allowed and count not in allowed:
            wanted = " or ".join(map(str, allowed))
            values = {"machine": machine.name, "wanted": wanted, "accelerator": name, "value": count}
            yield f"{pool.path}.machine_spec.accelerator_count", values


@check
def topology_required(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that a machine whose slices are named by topology has one."""
    for pool, machine in _known(subject):
        if machine.topologies and not pool.machine.tpu_topology:
            values = {"machine": machine.name, "wanted": ", ".join(machine.topologies)}
            yield f"{pool.path}.machine_spec.tpu_topology", values


@check
def topology_unsupported(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that the topology is one that the machine is used in."""
    for pool, machine in _known(subject):
        given = pool.machine.tpu_topology
        if given and machine.topologies and given not in machine.topologies:
            others = [m.name for m in machine_types().values() if m.generation == machine.generation]
            fitting = [name for name in others if given in machine_types()[name].topologies]
            wanted = f"{', '.join(fitting)} has" if fitting else f"there are {', '.join(machine.topologies)}"
            values = {"machine": machine.name, "value": given, "wanted": wanted}
            yield f"{pool.path}.machine_spec.tpu_topology", values


@check
def topology_unused(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that a machine whose slices are not named by topology has none."""
    for pool, machine in _known(subject):
        if pool.machine.tpu_topology and not machine.topologies:
            counted = machine.name == CLOUD_TPU
            fix = "its slices are asked for by accelerator_count" if counted else "it has no TPU"
            yield f"{pool.path}.machine_spec.tpu_topology", {"machine": machine.name, "fix": fix}


def _known(subject: Subject) -> Iterator[tuple[Pool, Machine]]:
    for pool in subject.pools:
        machine = machine_types().get(pool.machine.machine_type)
        if machine is not None:
            yield pool, machine


def _cloud_tpus(subject: Subject) -> Iterator[tuple[Pool, str, CloudTpu]]:
    for pool, machine in _known(subject):
        name = accelerator_name(pool.machine)
        if machine.name == CLOUD_TPU and name in cloud_tpus():
            yield pool, name, cloud_tpus()[name]


def _fits(about: CloudTpu, count: int) -> bool:
    if count == about.single:
        return True
    return count >= about.pod and not (about.multiple and count % about.pod)


def _is_unlisted(machine_type: str) -> bool:
    """Returns whether the name has the form of Compute Engine's, of a series of which no machine is listed."""
    match = _COMPUTE_ENGINE_FORM.fullmatch(machine_type)
    return match is not None and not any(name.startswith(f"{match['series']}-") for name in machine_types())


def _machine_meant(given: str) -> str:
    meant = machine_for_slice(given)
    if meant:
        return f": {given} is a slice; write {meant}"
    near = difflib.get_close_matches(given, machine_types(), n=2, cutoff=0.7)
    return f": did you mean {' or '.join(near)}" if near else ""


def _accelerators(machine: Machine) -> tuple[str, ...]:
    return tuple(cloud_tpus() if machine.name == CLOUD_TPU else machine.counts)


def _wanted(machine_spec: Any) -> str:
    """Returns what a machine takes, in words; empty for an unknown one."""
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


def _accelerator_fix(machine: Machine, name: str) -> str:
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


def _slice(name: str) -> Slice | None:
    try:
        return get_slice(name)
    except SliceError:
        return None
