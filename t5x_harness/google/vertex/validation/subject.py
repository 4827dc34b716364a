"""The job that is judged, and the paths by which rules name its fields."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator
from typing import Any

_SPECS = {"CustomJob": "job_spec", "HyperparameterTuningJob": "trial_job_spec"}
_STEP = re.compile(r"(?P<name>\w+)(?:\[(?P<index>\d*)\])?")
_TASKS = ("container_spec", "python_package_spec")


@dataclasses.dataclass(frozen=True)
class PoolSpec:
    """A worker pool that is not skipped.

    Attributes:
      path: the service's name for it.
    """

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
      location: the region that the job was sent to; empty if it is not known, and then no rule applies to it.
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
            PoolSpec(f"{self.spec_field}.worker_pool_specs[{index}]", index, pool)
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
    step, *rest = steps
    if step == "task":
        tasks = [name for name in _TASKS if message.HasField(name)]
        for name in tasks:
            yield from _further(getattr(message, name), rest, _join(at, name))
        return
    match = _STEP.fullmatch(step)
    assert match is not None, f"{step!r} is not a step of a path"
    name, index = match["name"], match["index"]
    if index is None:
        if not rest or _is_set(message, name):
            yield from _further(getattr(message, name), rest, _join(at, name))
        return
    for number, element in enumerate(getattr(message, name)):
        skipped = name == "worker_pool_specs" and number > 0 and not element.ByteSize()
        if not skipped and index in ("", str(number)):
            yield from _further(element, rest, f"{_join(at, name)}[{number}]")


def _further(value: Any, rest: list[str], at: str) -> Iterator[tuple[str, Any]]:
    if rest:
        yield from _walk(value, rest, at)
    else:
        yield at, value


def _is_set(message: Any, name: str) -> bool:
    field = message.DESCRIPTOR.fields_by_name[name]
    return field.message_type is None or bool(message.HasField(name))


def _join(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name
