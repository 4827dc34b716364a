"""The methods of Vertex AI's services, read from the installed client library.

The library's generated transports know each method, its messages and its URLs, and reveal them when they make stubs.
"""

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
    """Prepares the library's packages so that a server imports only messages and transports: half of the library.

    The packages are created without running their code, which would import each service's clients. This is only for
    the server's own process, because the packages then lack what their code imports.

    Raises:
      ModuleNotFoundError: ``google-cloud-aiplatform`` is not installed.
    """
    for library in _LIBRARIES:
        _add_package(library)
        services = _add_package(f"{library}.services")
        for service in pkgutil.iter_modules(services.__path__):
            _add_package(f"{services.__name__}.{service.name}")
            _add_package(f"{services.__name__}.{service.name}.transports")


def _add_package(package: str) -> ModuleType:
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    return sys.modules.setdefault(package, importlib.util.module_from_spec(spec))


@dataclasses.dataclass(frozen=True)
class HttpBinding:
    """How a method is called over HTTP.

    Attributes:
      verb: ``GET``, ``POST``, ``PATCH`` or ``DELETE``.
      template: the template of the path, such as ``/v1/{parent=projects/*/locations/*}/customJobs``.
      body: the field of the request in the body; ``*`` for the whole request, empty for none.
    """

    verb: str
    template: str
    body: str


@dataclasses.dataclass(frozen=True)
class Rpc:
    """One method of a service.

    Attributes:
      path: the path in gRPC: ``/google.cloud.aiplatform.v1.JobService/CreateCustomJob``.
      request: the class of the request.
      response: the class of the response, or of each message in a stream of them.
      streams: whether the response is a stream.
      bindings: how the method is called over HTTP; empty if it is not.
    """

    path: str
    request: type[Message]
    response: type[Message]
    streams: bool
    bindings: tuple[HttpBinding, ...]

    @property
    def method(self) -> str:
        """``CreateCustomJob``."""
        return self.path.rpartition("/")[2]

    @property
    def name(self) -> str:
        """``JobService.CreateCustomJob``, without a version."""
        return self.path.rpartition(".")[2].replace("/", ".")


def rpc_table(version: str = "v1") -> Mapping[str, Rpc]:
    """Returns the methods of all services in one version of the API, by name.

    The first call imports the library, which takes a second or two.

    Args:
      version: ``v1`` or ``v1beta1``.

    Raises:
      ModuleNotFoundError: ``google-cloud-aiplatform`` is not installed.
    """
    with _READING:  # two threads that import the same packages concurrently may deadlock
        return _read(version)


def message_class(name: str) -> type[Message]:
    """Returns the class of a message of v1 by its short name, such as ``CustomJob``."""
    rpc_table()  # imports the library, which defines the messages
    found = descriptor_pool.Default().FindMessageTypeByName(f"google.cloud.aiplatform.v1.{name}")
    kind: type[Message] = message_factory.GetMessageClass(found)
    return kind


_READING = threading.Lock()
_NO_STUBS = ("grpc_channel", "host", "kind", "operations_client")
_PROJECTS = "google.cloud.resourcemanager_v3.services.projects"  # the library asks it for project numbers


@functools.cache
def _read(version: str) -> Mapping[str, Rpc]:
    package = importlib.import_module(f"google.cloud.aiplatform_{version}.services")
    services = [f"{package.__name__}.{found.name}" for found in pkgutil.iter_modules(package.__path__)]
    rpcs: dict[str, Rpc] = {}
    for service in [*services, _PROJECTS]:
        transports = f"{service}.transports"
        try:
            rest = importlib.import_module(f"{transports}.rest_base")
        except ModuleNotFoundError:  # a service without REST
            rest = None
        for rpc in _rpcs(importlib.import_module(f"{transports}.grpc"), rest):
            known = rpcs[rpc.name].bindings if rpc.name in rpcs else ()  # Operations come with every service
            rpcs[rpc.name] = dataclasses.replace(rpc, bindings=tuple(dict.fromkeys((*known, *rpc.bindings))))
    return rpcs


def _rpcs(transport: ModuleType, rest: ModuleType | None) -> Iterator[Rpc]:
    """Yields the methods for which a transport makes stubs."""
    (made,) = _classes(transport, "GrpcTransport")
    bases = _classes(rest, "RestTransport") if rest else []
    channel = _StubRecorder()
    stubs = transport_on(made, channel)
    for name, stub in inspect.getmembers(made, lambda member: isinstance(member, property)):
        if name not in _NO_STUBS:
            stub.fget(stubs)
    for path, serialize, deserialize, streams in channel.stubs:
        method = path.rpartition("/")[2]
        request, response = _message(serialize, path, "input_type"), _message(deserialize, path, "output_type")
        if request is not None and response is not None:
            options = [each for base in bases for each in http_options(base, method)]
            bindings = (HttpBinding(each["method"].upper(), each["uri"], each.get("body", "")) for each in options)
            yield Rpc(path, request, response, streams, tuple(bindings))


def _classes(module: ModuleType, suffix: str) -> list[Any]:
    """Returns the classes that a module defines under names with a suffix."""
    found = inspect.getmembers(module, inspect.isclass)
    return [kind for name, kind in found if name.endswith(suffix) and kind.__module__ == module.__name__]


class _StubRecorder:
    """A channel that connects to nothing and remembers the stubs that were made.

    Attributes:
      stubs: each method's path, the function that serializes its request, the function that parses its response, and
        whether the response is a stream.
    """

    def __init__(self) -> None:
        self.stubs: list[tuple[str, Callable[..., Any], Callable[..., Any], bool]] = []

    def unary_unary(
        self,
        path: str,
        *,
        request_serializer: Callable[..., Any],
        response_deserializer: Callable[..., Any],
        streams: bool = False,
    ) -> None:
        """Records a method that takes one message."""
        self.stubs.append((path, request_serializer, response_deserializer, streams))

    unary_stream = functools.partialmethod(unary_unary, streams=True)

    def stream_stream(self, path: str, **_: Callable[..., Any]) -> None:
        """Ignores a method that takes a stream, because none of them is emulated."""


def _message(convert: Callable[..., Any], path: str, end: str) -> type[Message] | None:
    """Returns the class that a stub's function serializes or parses, or None if it is unknown.

    The library's own messages are wrapped. Those of Operations and Locations are not, and their serializers do not
    reveal the class, but protobuf knows these services.
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
    except KeyError:  # IAM's policies are in services with other names
        return None
    made: type[Message] | None = message_factory.GetMessageClass(getattr(found, end))
    return made
