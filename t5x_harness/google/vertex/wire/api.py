"""The API as a whole: a request's bytes in, a response's bytes out, for any transport."""

import re
import traceback
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from google.longrunning import operations_pb2
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2

from t5x_harness.google.product import PRODUCT
from t5x_harness.google.vertex import models
from t5x_harness.google.vertex.faults import RecordedCall, VertexFault
from t5x_harness.google.vertex.jobs.logs import list_entries
from t5x_harness.google.vertex.jobs.methods import Jobs
from t5x_harness.google.vertex.messages.checks import check_location, check_names, check_times, named_resource
from t5x_harness.google.vertex.metadata import nodes
from t5x_harness.google.vertex.methods import methods_of
from t5x_harness.google.vertex.services import ApiCall, Services
from t5x_harness.google.vertex.settings import VertexSettings
from t5x_harness.google.vertex.state import StateError, StateStore
from t5x_harness.google.vertex.wire.errors import ApiError, ApiNotEmulated, FieldViolation, StatusCode, invalid_argument
from t5x_harness.google.vertex.wire.rpc_table import Rpc, rpc_table

_EMULATED = (
    "of Vertex AI it has CustomJob and HyperparameterTuningJob (JobService), TrainingPipeline for custom tasks "
    "(PipelineService), models as metadata (ModelService), MetadataService, TensorboardService and operations"
)

_SERVING = re.compile(r"Endpoint|Predict|DeploymentResourcePool|Deployed")
_SERVED = (
    "No model is served here: after training, read the model's files at its artifact_uri, which are the same as on the "
    "service, and predict with its own library in a program or a custom job"
)


class Api:
    """Vertex AI's services over one state, for clients that have been admitted. Any thread may call it.

    Args:
      settings: the settings of Vertex AI.
      state: the state of everything.
    """

    def __init__(self, settings: VertexSettings, state: StateStore) -> None:
        self.services = services = Services(settings, state)
        self._jobs = Jobs(services)
        services.methods = methods_of(self._jobs)
        services.filters = {**nodes.FILTERS, **models.FILTERS}

    def stream(self, path: str, request: bytes, *, host: str = "", transport: str = "grpc") -> Iterator[bytes]:
        """Answers one request to a method; yields the bytes of the response, or of each message of a streamed one.

        Args:
          path: the method's path in gRPC: ``/google.cloud.aiplatform.v1.JobService/GetCustomJob``.
          request: the request's bytes.
          host: the host of the request, without a port; its region has to match the request's location.
          transport: the transport for the record; empty for the harness's own requests, which hit no fault and are not
            recorded.

        Raises:
          ApiError: the error for the client.
        """
        version = "v1beta1" if ".v1beta1." in path else "v1"
        name = path.rpartition(".")[2].replace("/", ".")
        rpc = rpc_table().get(name)
        code, about = "OK", ""
        fault: VertexFault | None = None
        try:
            if rpc is None or rpc.path != path.replace(".v1beta1.", ".v1."):
                raise _unimplemented(name)
            asked = _parsed(rpc, request)
            about = named_resource(asked)[1]
            if transport and (fault := self.services.faults.take_for(name, "fail", "stall")):
                if fault.kind == "fail":
                    raise ApiError(
                        StatusCode(fault.code), fault.message or f"{PRODUCT} injected this error into {name}"
                    )
                self.services.closing.wait(fault.seconds)
            check_names(rpc, asked)
            check_location(asked, host)
            check_times(asked)
            self.services.projects.normalize(asked)
            method = self.services.methods.get(name)
            if method is None:
                raise _unimplemented(name)
            answer = method(ApiCall(rpc, asked, self.services))
            answers = [answer] if isinstance(answer, Message) else answer
            for each in answers:
                yield _bytes_for(version, each)
        except ApiError as error:
            code = error.code.value
            raise
        except StateError as error:
            code = StatusCode.UNAVAILABLE.value
            raise _lost(error) from None
        except Exception as error:
            code = StatusCode.INTERNAL.value
            traceback.print_exc()
            message = f"{PRODUCT} has a bug: {path} failed with {type(error).__name__}: {error}"
            raise ApiError(StatusCode.INTERNAL, message) from error
        finally:
            if transport:
                known, hit = version if ".aiplatform." in path else "", fault.kind if fault else ""
                self.services.faults.record(RecordedCall(name, known, transport, about, code, hit))

    def administer(self, name: str, value: Any) -> Any:
        """Answers a request of the harness itself.

        Args:
          name: ``faults`` (all, and the record), ``arm`` (with a fault), ``reset``, ``state`` (its URL) or ``entries``
            (of logs).
          value: the argument, a JSON value.

        Returns:
          A JSON value.

        Raises:
          ApiError: NOT_FOUND: the request does not exist. UNAVAILABLE: the state is lost.
        """
        try:
            match name:
                case "arm":
                    self.services.faults.arm(VertexFault(**value))
                case "reset":
                    self.reset()
                case "state":
                    return {"url": self.services.state.url}
                case "entries":
                    return list_entries(self.services, {} if value is None else value)
                case _ if name != "faults":
                    raise ApiError(StatusCode.NOT_FOUND, f"there is no {name} to administer")
        except StateError as error:
            raise _lost(error) from None
        return self.services.faults.report()

    def reset(self) -> None:
        """Ends all jobs, and removes all resources, faults and recorded requests."""
        self._jobs.reset()
        self.services.state.clear()
        self.services.faults.clear()

    def close(self) -> None:
        """Ends all jobs and all waiting, and closes the state."""
        self.services.closing.set()
        self._jobs.close()
        self.services.state.close()


def _parsed(rpc: Rpc, request: bytes) -> Message:
    try:
        return rpc.request.FromString(request)
    except DecodeError:
        raise invalid_argument(f"the request is not a {rpc.request.DESCRIPTOR.full_name}") from None


def _bytes_for(version: str, answer: Any) -> bytes:
    """Returns the response's bytes for a client's version. Messages inside operations get the version's types."""
    if version == "v1beta1" and isinstance(answer, operations_pb2.Operation):
        for field in ("metadata", "response"):
            if answer.HasField(field):
                carried = getattr(answer, field)
                carried.type_url = carried.type_url.replace(".aiplatform.v1.", ".aiplatform.v1beta1.")
    return bytes(answer.SerializeToString())


def _lost(error: StateError) -> ApiError:
    return ApiError(StatusCode.UNAVAILABLE, f"{PRODUCT} cannot answer: {error}")


def _unimplemented(method: str) -> ApiError:
    instead = f". {_SERVED}" if _SERVING.search(method) else ""
    return ApiNotEmulated(f"{PRODUCT} does not emulate {method}; {_EMULATED}{instead}")


# gRPC's clients accept 8 KiB of trailers. For larger ones they report RESOURCE_EXHAUSTED instead of the error.
_ROOM = 7000
_LONGEST_TEXT, _LONGEST_MESSAGE = 400, 1200
_MOST = 20


def to_status(error: ApiError) -> status_pb2.Status:
    """Returns an error with its violations as details."""
    status = status_pb2.Status(code=error.code.number, message=error.message)
    if error.violations:
        violations = [
            error_details_pb2.BadRequest.FieldViolation(field=each.field, description=each.message)
            for each in error.violations
        ]
        status.details.add().Pack(error_details_pb2.BadRequest(field_violations=violations))
    return status


def fit_for_trailer(error: ApiError) -> ApiError:
    """Shortens an error to fit into gRPC's trailers: cuts the middle of long texts, and counts the last violations."""
    if _size(error) <= _ROOM:
        return error
    if not error.violations:
        return ApiError(error.code, _without_middle(error.message, _LONGEST_MESSAGE))
    whole = [
        FieldViolation(_without_middle(each.field, _LONGEST_TEXT), _without_middle(each.message, _LONGEST_TEXT))
        for each in error.violations
    ]
    for shown in range(min(len(whole), _MOST), 0, -1):
        more = len(whole) - shown
        rest = [FieldViolation("", f"{more} more, which REST lists: gRPC has no room for them")] if more else []
        shorter = ApiError.of_violations([*whole[:shown], *rest])
        if _size(shorter) <= _ROOM:
            break
    return shorter


def _size(error: ApiError) -> int:
    """Returns the size of a trailer, whose text is percent-encoded and whose details are in base64."""
    details: int = to_status(error).ByteSize()
    return len(quote(error.message)) + details * 4 // 3


def _without_middle(text: str, longest: int) -> str:
    data = text.encode()
    if len(data) <= longest:
        return text
    head, end = (part.decode(errors="ignore") for part in (data[: longest // 2], data[-longest // 4 :]))
    return f"{head} … {len(text) - len(head) - len(end)} characters left out … {end}"
