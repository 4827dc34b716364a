"""The services for the functions of Vertex AI's methods: resources in the state, and everything else that is shared.

``methods`` has the function for each method, and ``wire.api`` calls it with requests.
"""

import dataclasses
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from google.protobuf.message import Message

from t5x_harness.google.identity import PROJECT
from t5x_harness.google.vertex.faults import VertexFaults
from t5x_harness.google.vertex.messages.names import ProjectNames, is_resource, parent_of
from t5x_harness.google.vertex.settings import VertexSettings
from t5x_harness.google.vertex.state import StateStore
from t5x_harness.google.vertex.wire.errors import ApiError, StatusCode, not_found
from t5x_harness.google.vertex.wire.rpc_table import Rpc, rpc_table

_STEP = 1_000  # nanoseconds: services report microseconds


class Clock:
    """A clock in whole microseconds that never returns the same time twice."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def now(self) -> int:
        """Returns nanoseconds since 1970."""
        with self._lock:
            self._last = max(time.time_ns() // _STEP * _STEP, self._last + _STEP)
            return self._last


Kept = TypeVar("Kept", bound=Message)


def aspect_key(name: str, aspect: str) -> str:
    """Returns the key in the state for a part of a resource, which is deleted with the resource.

    Args:
      name: the resource's full name.
      aspect: the part, such as ``points`` or ``log/workerpool0-0``.
    """
    return f"{name}#{aspect}"


class Resources:
    """Messages by their full names, which contain project numbers.

    Args:
      state: the state, which stores each message under its name.
      clock: returns the times of the messages.
    """

    def __init__(self, state: StateStore, clock: Clock) -> None:
        self._state = state
        self._clock = clock

    def create(self, name: str, message: Kept) -> Kept:
        """Creates a resource.

        Args:
          name: the resource's full name.
          message: the resource's fields; it is not changed.

        Returns:
          The resource with its name, times and etag.

        Raises:
          ApiError: ALREADY_EXISTS, or NOT_FOUND for its parent.
        """
        made: Kept = type(message)()
        made.CopyFrom(message)
        _set(made, "name", name)
        self._stamp(made, "create_time", "update_time")
        if not self._state.create(name, made.SerializeToString()):
            raise ApiError(StatusCode.ALREADY_EXISTS, f"{made.DESCRIPTOR.name} with name {name} already exists")
        if is_resource(parent := parent_of(name)) and not self.exists(parent):
            # The parent was deleted in the meantime, and its deletion may have missed this resource.
            self._state.delete(name)
            raise not_found(parent)
        return made

    def get(self, name: str, kind: type[Kept]) -> Kept:
        """Returns a resource; raises ApiError (NOT_FOUND)."""
        found = self.find(name, kind)
        if found is None:
            raise not_found(name)
        return found

    def find(self, name: str, kind: type[Kept]) -> Kept | None:
        """Returns a resource, or None if it does not exist."""
        data = self._state.get(name)
        return None if data is None else _read(kind, data)

    def exists(self, name: str) -> bool:
        return self._state.get(name) is not None

    def update(self, name: str, kind: type[Kept], change: Callable[[Kept], object]) -> Kept:
        """Changes a resource atomically, and sets its time and etag.

        Args:
          name: the resource's full name.
          kind: the class of its message.
          change: changes the message. It is called again after a concurrent change. If it raises an error, nothing
            changes.

        Raises:
          ApiError: NOT_FOUND.
        """

        def changed(data: bytes) -> bytes:
            message = _read(kind, data)
            change(message)
            self._stamp(message, "update_time")
            return bytes(message.SerializeToString())

        data = self._state.update(name, changed)
        if data is None:
            raise not_found(name)
        return _read(kind, data)

    def delete(self, name: str, check: Callable[[bytes], object] | None = None) -> None:
        """Removes a resource, its children, and their parts (see :func:`aspect_key`).

        Args:
          name: the resource's full name.
          check: gets the resource's bytes, atomically with the deletion. If it raises an error, nothing is removed.

        Raises:
          ApiError: NOT_FOUND.
        """
        if not self._state.delete(name, check):
            raise not_found(name)
        for key in [*self._state.keys(f"{name}/"), *self._state.keys(f"{name}#")]:
            self._state.delete(key)

    def names(self, parent: str, collection: str) -> list[str]:
        """Returns the full names of the resources in a collection, sorted.

        Args:
          parent: the collection's parent; ``-`` stands for any, as in ``projects/1/locations/l/tensorboards/-``.
          collection: the collection, such as ``customJobs``.
        """
        pattern = re.compile(re.escape(parent).replace(r"/\-", r"/[^/#]+") + f"/{collection}/[^/#]+")
        known = f"{parent}/{collection}/".split("/-/")[0].removesuffix("/")
        return [key for key in self._state.keys(f"{known}/") if pattern.fullmatch(key)]

    def list(self, parent: str, collection: str, kind: type[Kept]) -> list[Kept]:
        """Returns the resources in a collection, sorted by name; for the arguments see :meth:`names`."""
        found = self._state.get_all(self.names(parent, collection))
        return [_read(kind, data) for data in found if data is not None]

    def _stamp(self, message: Message, *times: str) -> None:
        now = self._clock.now()
        for field in times:
            if field in message.DESCRIPTOR.fields_by_name:
                getattr(message, field).FromNanoseconds(now)
        _set(message, "etag", str(now // 1_000))


def _read(kind: type[Kept], data: bytes) -> Kept:
    found: Kept = kind.FromString(data)
    return found


def _set(message: Message, field: str, value: Any) -> None:
    if field in message.DESCRIPTOR.fields_by_name:
        setattr(cast(Any, message), field, value)


class Services:
    """The objects that all parts of Vertex AI share. Any thread may call them.

    Args:
      settings: the settings of Vertex AI.
      state: the state of everything.

    Attributes:
      clock: returns the times of resources.
      closing: set when the API ends, so that waiting ends.
      faults: the faults to inject, and the record of requests.
      methods: the methods by name; set once all parts exist.
      filters: the functions in filters by name; set once all parts exist.
    """

    def __init__(self, settings: VertexSettings, state: StateStore) -> None:
        self.settings = settings
        self.state = state
        self.clock = Clock()
        self.projects = ProjectNames(self.state, PROJECT)
        self.resources = Resources(self.state, self.clock)
        self.closing = threading.Event()
        self.faults = VertexFaults()
        for fault in settings.options.faults:
            self.faults.arm(fault)
        self.methods: Mapping[str, Method] = {}
        self.filters: Mapping[str, FilterFunction] = {}

    def ask(self, method: str, **fields: Any) -> Any:
        """Calls a method, such as ``JobService.GetCustomJob``, for another method."""
        rpc = rpc_table()[method]
        return self.methods[method](ApiCall(rpc, rpc.request(**fields), self))


@dataclasses.dataclass(frozen=True)
class ApiCall:
    """One request to a method.

    Attributes:
      rpc: the method of v1, regardless of the version that was called.
      request: a message of the class ``rpc.request``, with project numbers. The method may change it.
      services: the services that the method uses.
    """

    rpc: Rpc
    request: Any
    services: Services


Method = Callable[[ApiCall], Message | Iterator[Message]]
FilterFunction = Callable[[Services, Any, Sequence[str]], bool]
"""A function in filters. It gets the services, a resource's message and the arguments.

A function named ``Context.child_contexts`` stands for a field that the message does not have. Its arguments are the
operator and the value with which the field is compared.
"""
