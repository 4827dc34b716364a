"""The rules in ``rules.toml`` and in other files of this format as values, and the job that they judge."""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

_SPECS = {"CustomJob": "job_spec", "HyperparameterTuningJob": "trial_job_spec"}
_STEP = re.compile(r"(?P<name>\w+)(?:\[(?P<index>\d*)\])?")
_TASKS = ("container_spec", "python_package_spec")


@dataclasses.dataclass(frozen=True)
class PoolSpec:
    """A worker pool of a job that is not skipped; ``path`` is the service's name for it."""

    job: Subject
    path: str
    index: int
    message: Any

    @property
    def machine(self) -> Any:
        return self.message.machine_spec


@dataclasses.dataclass(frozen=True)
class Subject:
    """A ``CustomJob`` or a ``HyperparameterTuningJob``, as the SDK's protobuf message of any version of the API.

    Attributes:
      location: the region to which the job was sent; empty if it is not known, in which case no rule applies to it.
    """

    message: Any
    location: str = ""

    def __post_init__(self) -> None:
        descriptor = getattr(self.message, "DESCRIPTOR", None)
        if descriptor is None or descriptor.name not in _SPECS:
            raise TypeError(f"no rules for {type(self.message).__name__}: give the message of {' or '.join(_SPECS)}")

    @property
    def spec_field(self) -> str:
        """The name of the field with the ``CustomJobSpec``."""
        return _SPECS[self.message.DESCRIPTOR.name]

    @property
    def spec(self) -> Any:
        return getattr(self.message, self.spec_field)

    @property
    def tunes(self) -> bool:
        return self.spec_field == "trial_job_spec"

    @functools.cached_property
    def pools(self) -> tuple[PoolSpec, ...]:
        """The worker pools; an empty pool after the first one is skipped."""
        return tuple(
            PoolSpec(self, f"{self.spec_field}.worker_pool_specs[{index}]", index, pool)
            for index, pool in enumerate(self.spec.worker_pool_specs)
            if index == 0 or pool.ByteSize()
        )

    def has(self, path: str) -> bool:
        """Returns whether a field of the spec is set; ``path`` begins with ``spec``, and names no element of a list."""
        message, found = self.spec, True
        for name in path.split(".")[1:]:
            found = bool(getattr(message, name)) and _is_set(message, name)
            message = getattr(message, name)
        return found

    def resolve(self, path: str) -> Iterator[tuple[str, Any]]:
        """Yields every place that a rule's path names, with its value.

        There are no places in a message that is not set. Fields of the job itself, such as ``labels``, always exist.
        """
        first, _, rest = path.partition(".")
        if first == "spec":
            yield from _walk(self.spec, rest.split("."), self.spec_field)
        elif first.partition("[")[0] in self.message.DESCRIPTOR.fields_by_name:
            yield from _walk(self.message, path.split("."), "")


def _walk(message: Any, steps: list[str], at: str) -> Iterator[tuple[str, Any]]:
    if not steps:
        yield at, message
        return
    step, *rest = steps
    if step == "task":
        tasks = [name for name in _TASKS if message.HasField(name)]
        for name in tasks:
            yield from _walk(getattr(message, name), rest, _join(at, name))
        return
    match = _STEP.fullmatch(step)
    assert match is not None, f"{step!r} is not a step of a path"
    name, index = match["name"], match["index"]
    if index is None:
        if not rest or _is_set(message, name):
            yield from _walk(getattr(message, name), rest, _join(at, name))
        return
    for number, element in enumerate(getattr(message, name)):
        skipped = name == "worker_pool_specs" and number > 0 and not element.ByteSize()
        if not skipped and index in ("", str(number)):
            yield from _walk(element, rest, f"{_join(at, name)}[{number}]")


def _is_set(message: Any, name: str) -> bool:
    field = message.DESCRIPTOR.fields_by_name[name]
    return field.message_type is None or bool(message.HasField(name))


def _join(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


@dataclasses.dataclass(frozen=True)
class RuleSource:
    """The source of a rule. A rule without a source has no ``url``."""

    title: str
    url: str

    def __str__(self) -> str:
        return f"{self.title} ({self.url})" if self.url else self.title


Breach: TypeAlias = tuple[str, Mapping[str, Any]]
"""The place where a rule is broken, and the values for the rule's message."""

Check: TypeAlias = "Callable[[Subject, SpecRule], Iterator[Breach]]"


@dataclasses.dataclass(frozen=True)
class SpecRule:
    """A rule for the specs of jobs.

    Attributes:
      field: the path of the field to which it applies, as ``rules.toml`` explains.
      check: yields a breach for each place where the rule is broken.
      message: the message, with placeholders that the check fills in.
      confidence: the certainty that the service applies it; ``rules.toml`` explains each value.
      parameters: the parameters of the check, such as ``limit`` or ``pattern``.
      accepted: whether the service accepts jobs that break it.
      code: its code in the failure catalog, if it has one.
    """

    name: str
    field: str
    check: Check
    message: str
    source: RuleSource
    confidence: str
    parameters: Mapping[str, Any]
    accepted: bool = False
    code: str | None = None

    @property
    def refuses(self) -> bool:
        """Whether the emulation refuses a job that breaks it; otherwise it warns."""
        return not self.accepted and self.confidence in ("observed", "documented")


@functools.cache
def read_table(package: str, name: str) -> Mapping[str, Any]:
    """Returns a data file of a package, parsed."""
    return tomllib.loads(importlib.resources.files(package).joinpath(name).read_text(encoding="utf-8"))


def rules_in(table: Mapping[str, Any], checks: Mapping[str, Check]) -> tuple[SpecRule, ...]:
    """Returns the rules of a data file, which names their checks; its order is also the order of violations."""
    sources = {name: RuleSource(**about) for name, about in table["sources"].items()}
    rules = []
    for entry in table["rule"]:
        given = {**entry, "source": sources[entry["source"]], "check": checks[entry["check"]]}
        fields = {field.name: given.pop(field.name) for field in dataclasses.fields(SpecRule) if field.name in given}
        rules.append(SpecRule(**fields, parameters=given))
    return tuple(rules)
