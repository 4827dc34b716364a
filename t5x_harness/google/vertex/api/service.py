"""The API as a whole: a request's bytes in, a response's bytes out, whatever transport they come by."""

from __future__ import annotations

import importlib
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from google.longrunning import operations_pb2
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from t5x_harness.google.serving.authority import UNAUTHENTICATED, Authority
from t5x_harness.google.serving.folder import PROJECT
from t5x_harness.google.vertex.api import common, standard
from t5x_harness.google.vertex.api.clock import Clock
from t5x_harness.google.vertex.api.errors import ApiError, Code, NotEmulated
from t5x_harness.google.vertex.api.faulting import Faults
from t5x_harness.google.vertex.api.handlers import Call, FilterFunction, Handlers, Part
from t5x_harness.google.vertex.api.locations import check_location, named_resource
from t5x_harness.google.vertex.api.name_checks import check_names
from t5x_harness.google.vertex.api.names import ProjectNames
from t5x_harness.google.vertex.api.operations import Operations
from t5x_harness.google.vertex.api.resources import Resources
from t5x_harness.google.vertex.api.rest import RestAnswer, RestRequest, answer_rest
from t5x_harness.google.vertex.api.rpc_table import Rpc, rpc_table
from t5x_harness.google.vertex.faults import RecordedCall, VertexFault
from t5x_harness.google.vertex.settings import VertexSettings
from t5x_harness.google.vertex.state import StateError, StateStore, open_store

__all__ = ["PARTS", "Api"]

PARTS: Sequence[str] = (
    "t5x_harness.google.vertex.jobs",
    "t5x_harness.google.vertex.metadata",
    "t5x_harness.google.vertex.tensorboard",
    "t5x_harness.google.vertex.training_pipelines",
)
"""The modules of the parts; each has a function ``part(api: Api) -> Part``."""

_EMULATED = (
    "of Vertex AI it has CustomJob and HyperparameterTuningJob (JobService), TrainingPipeline for custom tasks "
    "(PipelineService), MetadataService, TensorboardService and operations"
)


class Api:
    """Vertex AI's services over one state. Any thread may call it.

    Args:
      settings: what it is told.
      state: keeps everything; by default what ``settings.options.state`` names.
      authority: knows who may ask; by default one with a token of its own.
      parts: modules, by name, or functions ``part(api)``; by default all that there are.

    Attributes:
      settings: what it was told.
      state: keeps everything.
      clock: for the times of resources.
      projects: their numbers.
      resources: by name.
      operations: long-running ones.
      faults: to be injected, and the record of requests.
      authority: knows who may ask.
      filters: functions in filters, by name.

    Raises:
      StateError: the state cannot be had.
    """

    def __init__(
        self,
        settings: VertexSettings,
        *,
        state: StateStore | None = None,
        authority: Authority | None = None,
        parts: Sequence[str | Callable[[Api], Part]] = PARTS,
    ) -> None:
        self.settings = settings
        self.state = open_store(settings.options.state) if state is None else state
        self.clock = Clock()
        self.projects = ProjectNames(self.state, PROJECT)
        self.resources = Resources(self.state, self.clock)
        self._closing = threading.Event()
        self.operations = Operations(self.resources, self._closing)
        self.faults = Faults()
        for fault in settings.options.faults:
            self.faults.arm(fault)
        self.authority = authority or Authority()
        self._parts = [_make(part)(self) for part in parts]
        self._handlers = Handlers(common.HANDLERS, *(part.handlers for part in self._parts))
        self._admin = {name: function for part in self._parts for name, function in part.admin.items()}
        self.filters: Mapping[str, FilterFunction] = {
            name: function for part in self._parts for name, function in part.filters.items()
        }

    @classmethod
    def local(cls, folder: Path, parts: Sequence[str | Callable[[Api], Part]] = PARTS) -> Self:
        """One in this process without a server, for tests and tools: its state is in memory.

        Args:
          folder: takes the object store (``root``) and what jobs need on disk (``jobs``).
          parts: as above.
        """
        return cls(VertexSettings(root=folder / "root", folder=folder / "jobs"), parts=parts)

    def call(self, path: str, request: bytes, token: str, *, host: str = "", transport: str = "grpc") -> bytes:
        """Answers one request to a method whose response is one message.

        Args:
          path: the method's, as gRPC names it: ``/google.cloud.aiplatform.v1.JobService/GetCustomJob``.
          request: the message's bytes.
          token: of the client; see :class:`Authority`.
          host: that was asked, without a port; its region has to be the request's.
          transport: by which it came, for the record; empty for what the harness asks: it meets no fault and is not
            recorded.

        Returns:
          The response's bytes.

        Raises:
          ApiError: what the client is to be told.
        """
        (answer,) = self.stream(path, request, token, host=host, transport=transport)
        return answer

    def stream(
        self, path: str, request: bytes, token: str, *, host: str = "", transport: str = "grpc"
    ) -> Iterator[bytes]:
        """Answers one request to any method; the same as :meth:`call`, but for responses that are a stream."""
        version = "v1beta1" if ".v1beta1." in path else "v1"
        rpc = self.rpc(path)
        code, about = "OK", ""
        fault: VertexFault | None = None
        self.admit(token)
        try:
            if rpc is None:
                raise _unimplemented(path)
            message = _parsed(rpc, request)
            about = named_resource(message)[1]
            if transport and (fault := self.faults.take(rpc.name, "fail", "stall")):
                self._suffer(rpc, fault)
            check_names(rpc, message)
            check_location(message, host)
            self.projects.normalize(message)
            answer = self._answer(Call(rpc, message, self))
            answers = [answer] if isinstance(answer, Message) else answer
            for each in answers:
                yield _bytes_for(version, each)
        except ApiError as error:
            code = error.code.value
            raise
        except StateError as error:
            code = Code.UNAVAILABLE.value
            raise _lost(error) from None
        except Exception as error:
            code = Code.INTERNAL.value
            traceback.print_exc()
            raise ApiError(
                Code.INTERNAL, f"t5x-harness has a fault: {path} ended in {type(error).__name__}: {error}"
            ) from error
        finally:
            name = rpc.name if rpc else path.rpartition(".")[2].replace("/", ".")
            known = version if ".aiplatform." in path else ""
            if transport:
                self.faults.record(RecordedCall(name, known, transport, about, code, fault.kind if fault else ""))

    def admit(self, token: str) -> None:
        """Refuses whoever holds no token of the session.

        Raises:
          ApiError: UNAUTHENTICATED; the text says what to do, and nothing of the token.
        """
        if not self.authority.admits(token):
            raise ApiError(Code.UNAUTHENTICATED, UNAUTHENTICATED)

    def call_rest(self, request: RestRequest) -> RestAnswer:
        """Answers one request over HTTP."""
        return answer_rest(self, request)

    def rpc(self, path: str) -> Rpc | None:
        """The method of v1 that a path of any version stands for; None if there is none."""
        return rpc_table().get(path.replace(".v1beta1.", ".v1."))

    def message(self, name: str) -> type[Message]:
        """The class of a message of v1 by its short name, such as ``CustomJob``."""
        rpc_table()  # has the library define them
        found = descriptor_pool.Default().FindMessageTypeByName(f"google.cloud.aiplatform.v1.{name}")
        kind: type[Message] = message_factory.GetMessageClass(found)
        return kind

    def standard(self, call: Call) -> Message:
        """What a method does by the rules for all resources; see :meth:`Call.standard`."""
        return standard.run_standard(call)

    def deleting(self, job: Message) -> None:
        """Tells all parts that a job is about to be deleted."""
        for part in self._parts:
            part.deleting(job)

    def administer(self, name: str, value: Any) -> Any:
        """Answers the harness itself.

        Args:
          name: ``faults`` (all, and the record), ``arm`` (with a fault), ``reset``, ``state`` (its URL), or what a
            part has.
          value: its argument, as JSON has it.

        Returns:
          A value for JSON.

        Raises:
          ApiError: NOT_FOUND: there is nothing of that name. UNAVAILABLE: the state is lost. What the parts raise.
        """
        try:
            match name:
                case "arm":
                    self.faults.arm(VertexFault(**value))
                case "reset":
                    self.reset()
                case "state":
                    return {"url": self.state.url}
                case _ if name in self._admin:
                    return self._admin[name](value)
                case _ if name != "faults":
                    raise ApiError(Code.NOT_FOUND, f"there is no {name} to administer")
        except StateError as error:
            raise _lost(error) from None
        return self.faults.told()

    def reset(self) -> None:
        """Ends all jobs, and forgets all resources, faults and requests."""
        for part in self._parts:
            part.reset()
        self.state.clear()
        self.faults.clear()

    def close(self) -> None:
        """Ends all jobs and lets go of the state; what still waits here goes on at once."""
        self._closing.set()
        for part in self._parts:
            part.close()
        self.state.close()

    def _suffer(self, rpc: Rpc, fault: VertexFault) -> None:
        if fault.kind == "stall":
            self._closing.wait(fault.seconds)
            return
        raise ApiError(Code(fault.code), fault.message or f"t5x-harness injected this error into {rpc.name}")

    def _answer(self, call: Call) -> Message | Iterator[Message]:
        if handler := self._handlers.get(call.rpc.name):
            return handler(call)
        if standard.has_standard(call):
            return self.standard(call)
        raise _unimplemented(call.rpc.path)


def _make(part: str | Callable[[Api], Part]) -> Callable[[Api], Part]:
    if isinstance(part, str):
        made: Callable[[Api], Part] = importlib.import_module(part).part
        return made
    return part


def _parsed(rpc: Rpc, request: bytes) -> Message:
    try:
        return rpc.request.FromString(request)
    except DecodeError:
        raise ApiError(Code.INVALID_ARGUMENT, f"the request is no {rpc.request.DESCRIPTOR.full_name}") from None


def _bytes_for(version: str, answer: Any) -> bytes:
    """The response for a client of a version: what operations carry has to be of the client's version, too."""
    if version == "v1beta1" and isinstance(answer, operations_pb2.Operation):
        theirs = operations_pb2.Operation()
        theirs.CopyFrom(answer)
        for field in ("metadata", "response"):
            if theirs.HasField(field):
                carried = getattr(theirs, field)
                carried.type_url = carried.type_url.replace(".aiplatform.v1.", ".aiplatform.v1beta1.")
        answer = theirs
    data: bytes = answer.SerializeToString()
    return data


def _lost(error: StateError) -> ApiError:
    return ApiError(Code.UNAVAILABLE, f"t5x-harness cannot answer: {error}")


def _unimplemented(path: str) -> ApiError:
    method = path.rpartition(".")[2].replace("/", ".")
    return NotEmulated(f"t5x-harness does not emulate {method}; {_EMULATED}")
