"""Judges the spec of a job by every rule at once, and finds accelerator types that the API does not have.

A name that is not in the API never becomes a message, because JSON with it does not parse. So the JSON is searched.
"""

import dataclasses
import difflib
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from t5x_harness.google.vertex.validation.checks import CHECKS
from t5x_harness.google.vertex.validation.machine_types import cloud_tpus, find_slice, machine_types
from t5x_harness.google.vertex.validation.machines import machine_text
from t5x_harness.google.vertex.validation.rules import SpecRule, Subject, read_table, rules_in


@dataclasses.dataclass(frozen=True)
class SpecViolation:
    """A rule that a spec breaks.

    Attributes:
      field: the service's name for the field: ``job_spec.worker_pool_specs[0].machine_spec.accelerator_type``.
      message: a description of the error, followed by the smallest fix if one is known.
      code: the code in the failure catalog, such as ``VTX04``, if there is one.
      source: the source of the rule, with a title and an address.
      rule: the rule's name in the file of rules.
    """

    field: str
    message: str
    code: str | None
    source: str
    rule: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}{f' [{self.code}]' if self.code else ''}"


@dataclasses.dataclass(frozen=True)
class SpecVerdict:
    """All violations in a spec, in the order of the rules.

    Attributes:
      violations: those for which the service refuses the job.
      warnings: violations of rules that are not the service's, and violations that break only the running job.
    """

    violations: tuple[SpecViolation, ...]
    warnings: tuple[SpecViolation, ...]


@functools.cache
def service_rules() -> tuple[SpecRule, ...]:
    """Returns every rule of the service itself."""
    return rules_in(read_table(__package__, "rules.toml"), CHECKS)


def judge(job: Any, location: str = "", more: Sequence[SpecRule] = ()) -> SpecVerdict:
    """Returns the violations for which the service refuses a job, and anything else that may be wrong with it.

    Args:
      job: a ``CustomJob`` or a ``HyperparameterTuningJob``, as the SDK's protobuf or proto-plus message; any other
        message raises TypeError.
      location: the region to which it is sent; without it, no rule about regions is applied.
      more: rules in addition to the service's.
    """
    to_protobuf = getattr(type(job), "pb", None)
    subject = Subject(to_protobuf(job) if to_protobuf else job, location)
    refused: list[SpecViolation] = []
    warned: list[SpecViolation] = []
    for rule in (*service_rules(), *more):
        (refused if rule.refuses else warned).extend(_violations(subject, rule))
    return SpecVerdict(tuple(refused), tuple(warned))


def _violations(subject: Subject, rule: SpecRule) -> Iterator[SpecViolation]:
    for at, values in rule.check(subject, rule):
        message = rule.message.format(**{**rule.parameters, **values})
        yield SpecViolation(at, message, rule.code, str(rule.source), rule.name)


_KEYS = ("acceleratorType", "accelerator_type")
_ENUM = "type.googleapis.com/google.cloud.aiplatform.v1.AcceleratorType"
_UNMENTIONED = ("ACCELERATOR_TYPE_UNSPECIFIED", "NVIDIA_TESLA_K80", "TPU_V4_POD", "TPU_V5_LITEPOD")
_SOURCE = (
    "REST reference of MachineSpec, and the SDK's types.AcceleratorType "
    "(https://cloud.google.com/vertex-ai/docs/reference/rest/v1/MachineSpec#AcceleratorType)"
)
_SPOKEN = {
    "A100_40GB": "NVIDIA_TESLA_A100",
    "A100": "NVIDIA_TESLA_A100",
    "H100": "NVIDIA_H100_80GB",
    "H200": "NVIDIA_H200_141GB",
    "TPU_V4": "TPU_V4_POD",
    "TPU_V5E": "TPU_V5_LITEPOD",
    "TPU_V5LITEPOD": "TPU_V5_LITEPOD",
    "TPU_V5_LITE": "TPU_V5_LITEPOD",
}


def accelerator_meant(given: str) -> str:
    """Returns the replacement for a name that is not an accelerator type; empty if no type is similar.

    ``v3-32`` becomes the machine spec of that slice, and ``A100_80GIB`` becomes ``NVIDIA_A100_80GB``.
    """
    machine = machine_text(given)
    if machine:
        return f"{given} is a slice; write {machine}"
    if find_slice(given):
        return f"{given} is a slice, of a size or generation for which custom training documents no machine"
    name = re.sub(r"\W+", "_", given.strip()).upper().replace("GIB", "GB")
    bare = name.removeprefix("NVIDIA_").removeprefix("TESLA_")
    spoken = _SPOKEN.get(bare)
    if spoken == "TPU_V5_LITEPOD":
        return "TPU v5e is asked for with machine_type ct5lp-hightpu-4t and tpu_topology, without an accelerator type"
    if spoken == "TPU_V4_POD":
        return "the type is called TPU_V4_POD, and custom training documents no machine for it"
    known = accelerator_types()
    meant = spoken or next((type_ for type_ in known if type_ == name or type_.endswith(f"_{bare}")), None)
    near = [meant] if meant else difflib.get_close_matches(name, known, n=2, cutoff=0.6)
    return f"write {' or '.join(near)}" if near else ""


def misspelt_accelerators(document: Any, kind: str = "custom_job") -> tuple[SpecViolation, ...]:
    """Returns a violation for each accelerator type in a job's JSON or YAML that the API does not have.

    Each has the message of Google's JSON parser, and the name that was probably meant.

    Args:
      document: a job or a part of one, with keys in either spelling, ``acceleratorType`` or ``accelerator_type``.
      kind: the name of the resource, with which the service's message begins.
    """
    violations = []
    for at, given in _accelerators(document, ""):
        if given not in accelerator_types():
            meant = accelerator_meant(given)
            message = f"Invalid value at '{kind}.{at}' ({_ENUM}), \"{given}\"{f': {meant}' if meant else ''}"
            code = "VTX02" if find_slice(given) else "VTX18"
            violations.append(SpecViolation(at, message, code, _SOURCE, "accelerator-name"))
    return tuple(violations)


def _accelerators(document: Any, at: str) -> Iterator[tuple[str, str]]:
    if isinstance(document, Mapping):
        for key, value in document.items():
            name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", str(key)).lower()
            here = f"{at}.{name}" if at else name
            if key in _KEYS and isinstance(value, str):
                yield here, value
            else:
                yield from _accelerators(value, here)
    elif isinstance(document, Sequence) and not isinstance(document, str | bytes):
        for index, element in enumerate(document):
            yield from _accelerators(element, f"{at}[{index}]")


def accelerator_types() -> tuple[str, ...]:
    """Returns every type of the API: the types of known machines, and types that custom training does not document."""
    taken = dict.fromkeys(name for machine in machine_types().values() for name in machine.counts)
    return (*cloud_tpus(), *taken, *_UNMENTIONED)
