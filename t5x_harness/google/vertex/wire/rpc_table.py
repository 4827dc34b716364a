"""The methods of Vertex AI's services, read out of the installed library's own client code.

Nothing of it is written down here: what a library can call, with which messages and under which URLs, is what its
generated transports say when they make their stubs.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import inspect
import pkgutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import Message

from t5x_harness.upstream.google_sdk import http_options, transport_on

_LIBRARIES = ("google.cloud.aiplatform_v1", "google.cloud.resourcemanager_v3")


def import_messages_only() -> None:
    """Has a server import of the library what it reads, which is half: its messages and transports, and no client.

    Its packages are put in place without running their own code, which imports each service's clients. For a process
    that is ours alone: what the packages' own code imports is not found in them.

    Raises:
      ModuleNotFoundError: ``google-cloud-aiplatform`` is not installed.
    """
    for library in _LIBRARIES:
        _put_in_place(library)
        services = _put_in_place(f"{library}.services")
        for service in pkgutil.iter_modules(services.__path__):
            _put_in_place(f"{services.__name__}.{service.name}")
            _put_in_place(f"{services.__name__}.{service.name}.transports")


def _put_in_place(package: str) -> ModuleType:
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    return sys.modules.setdefault(package, importlib.util.module_from_spec(spec))


@dataclasses.dataclass(frozen=True)
class HttpBinding:
    """How a method is called over HTTP.

    Attributes:
      verb: ``GET``, ``POST``, ``PATCH`` or ``DELETE``.
      template: of the path, such as ``/v1/{parent=projects/*/locations/*}/customJobs``.
      body: the field that the body is; ``*`` for the whole request, empty for none.
    """

    verb: str
    template: str
    body: str


@dataclasses.dataclass(frozen=True)
class Rpc:
    """One method of a service.

    Attributes:
      path: as gRPC names it: ``/google.cloud.aiplatform.v1.JobService/CreateCustomJob``.
      response: the class of its response, or of each of several.
      bindings: how it is called over HTTP; empty if it is not.
    """

    path: str
    request: type[Message]
    response: type[Message]
    streams: bool
    bindings: tuple[HttpBinding, ...]

    @property
    def service(self) -> str:
        """``JobService``."""
        return self.path.split("/")[1].rpartition(".")[2]

    @property
    def method(self) -> str:
        """``CreateCustomJob``."""
        return self.path.rpartition("/")[2]

    @property
    def name(self) -> str:
        """``JobService.CreateCustomJob``, as handlers are registered: without a version."""
        return f"{self.service}.{self.method}"


class RpcTable(dict[str, Rpc]):
    """The methods of all services in one version of the API, by path; nobody changes it."""

    def __init__(self, version: str, rpcs: Mapping[str, Rpc]) -> None:
        super().__init__(rpcs)
        self.version = version
        self._named = {rpc.name: rpc for rpc in rpcs.values()}

    def named(self, name: str) -> Rpc | None:
        """Returns a method by its name without a version, such as ``JobService.CreateCustomJob``."""
        return self._named.get(name)


def rpc_table(version: str = "v1") -> RpcTable:
    """Returns the table of one version. The first call imports the library, which takes a second or two.

    Args:
      version: ``v1`` or ``v1beta1``.

    Raises:
      ModuleNotFoundError: ``google-cloud-aiplatform`` is not installed.
    """
    with _READING:  # two threads that import the same packages at once may wait for each other
        return _read(version)


_READING = threading.Lock()
_NO_STUBS = ("grpc_channel", "host", "kind", "operations_client")
_PROJECTS = "google.cloud.resourcemanager_v3.services.projects"  # the library asks it for projects' numbers


@functools.cache
def _read(version: str) -> RpcTable:
    package = importlib.import_module(f"google.cloud.aiplatform_{version}.services")
    services = [f"{package.__name__}.{found.name}" for found in pkgutil.iter_modules(package.__path__)]
    rpcs: dict[str, Rpc] = {}
    for service in [*services, _PROJECTS]:
        transports = f"{service}.transports"
        try:
            rest = importlib.import_module(f"{transports}.rest_base")
        except ModuleNotFoundError:  # a service that is called over gRPC alone
            rest = None
        for rpc in _rpcs(importlib.import_module(f"{transports}.grpc"), rest):
            known = rpcs.get(rpc.path)  # Operations and Locations come with every service
            bindings = (
                (*known.bindings, *(b for b in rpc.bindings if b not in known.bindings)) if known else rpc.bindings
            )
            rpcs[rpc.path] = dataclasses.replace(rpc, bindings=bindings)
    return RpcTable(version, rpcs)


def _rpcs(transport: ModuleType, rest: ModuleType | None) -> Iterator[Rpc]:
    """Yields the methods that a transport makes stubs for."""
    (made,) = (kind for name, kind in _classes(transport) if name.endswith("GrpcTransport"))
    bases = [kind for name, kind in _classes(rest) if name.endswith("RestTransport")] if rest else []
    channel = _StubRecorder()
    stubs = transport_on(made, channel)
    for name, stub in inspect.getmembers(made, lambda member: isinstance(member, property)):
        if name not in _NO_STUBS:
            stub.fget(stubs)
    for path, serialize, deserialize, streams in channel.stubs:
        method = path.rpartition("/")[2]
        request, response = _message(serialize, path, "input_type"), _message(deserialize, path, "output_type")
        if request is not None and response is not None:
            bindings = (binding for base in bases for binding in _bindings(base, method))
            yield Rpc(path, request, response, streams, tuple(bindings))


def _classes(module: ModuleType | None) -> list[tuple[str, Any]]:
    return [
        (name, kind)
        for name, kind in inspect.getmembers(module, inspect.isclass)
        if module is not None and kind.__module__ == module.__name__
    ]


def _bindings(rest_transport: Any, method: str) -> Iterator[HttpBinding]:
    for each in http_options(rest_transport, method):
        yield HttpBinding(each["method"].upper(), each["uri"], each.get("body", ""))


class _StubRecorder:
    """In the place of a channel: connects to nothing and remembers which stubs were made.

    Attributes:
      stubs: of each method its path, what makes bytes of its request and a message of its response, and whether that
        is a stream.
    """

    def __init__(self) -> None:
        self.stubs: list[tuple[str, Callable[..., Any], Callable[..., Any], bool]] = []

    def unary_unary(
        self, path: str, *, request_serializer: Callable[..., Any], response_deserializer: Callable[..., Any]
    ) -> None:
        """Returns a callable, as grpc.Channel does."""
        self.stubs.append((path, request_serializer, response_deserializer, False))

    def unary_stream(
        self, path: str, *, request_serializer: Callable[..., Any], response_deserializer: Callable[..., Any]
    ) -> None:
        """Returns a method whose response is a stream."""
        self.stubs.append((path, request_serializer, response_deserializer, True))

    def stream_stream(self, path: str, **_: Callable[..., Any]) -> None:
        """Refuses a method that takes a stream: none of those is emulated."""


def _message(convert: Callable[..., Any], path: str, end: str) -> type[Message] | None:
    """Returns the class that a stub's function makes bytes of, or makes of bytes.

    The library's own messages are wrapped; those of Operations and Locations are not, and their serializers do not
    tell the class, but these services are known to protobuf. None if it is unknown.
    """
    owner = getattr(convert, "__self__", None)
    if hasattr(owner, "pb"):
        found: type[Message] | None = owner.pb()  # type: ignore[union-attr]
        return found
    if inspect.isclass(owner) and issubclass(owner, Message):
        return owner
    _, service, method = path.split("/")
    try:
        found = descriptor_pool.Default().FindMethodByName(f"{service}.{method}")
    except KeyError:  # those of IAM's policies, in services of other names
        return None
    made: type[Message] | None = message_factory.GetMessageClass(getattr(found, end))
    return made
