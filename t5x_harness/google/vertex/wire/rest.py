"""JSON over HTTP, transcoded from and to messages as Google's APIs do it; the URLs follow the library's templates."""

import collections
import dataclasses
import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from google.protobuf import json_format
from google.rpc import error_details_pb2  # noqa: F401 - registers the types of errors' details, which become JSON

from t5x_harness.google.asgi import NOT_EMULATED, not_emulated
from t5x_harness.google.json_text import BadJson, read_json
from t5x_harness.google.product import PRODUCT
from t5x_harness.google.vertex.messages.paths import FieldPath, NoField, is_repeated
from t5x_harness.google.vertex.validation.judging import misspelt_accelerators
from t5x_harness.google.vertex.wire.api import Api, to_status
from t5x_harness.google.vertex.wire.errors import ApiError, ApiNotEmulated, FieldViolation, StatusCode, invalid_argument
from t5x_harness.google.vertex.wire.rpc_table import HttpBinding, Rpc, rpc_table

_VARIABLE = re.compile(r"\{([\w.]+)(?:=([^}]+))?\}")


@dataclasses.dataclass(frozen=True)
class _Route:
    rpc: Rpc
    binding: HttpBinding
    pattern: re.Pattern[str]
    fields: tuple[str, ...]


def find_route(verb: str, path: str) -> tuple[Rpc, HttpBinding, Mapping[str, str]] | None:
    """Returns the method of a request with the URL template that matched, or None.

    Args:
      verb: ``GET``, ``POST``, …
      path: the decoded path, such as ``/v1/projects/p/locations/l/customJobs/1:cancel``.

    Returns:
      Also the values in the path by the paths of their fields in the request: ``{"custom_job.name": "projects/…"}``.
    """
    routes = _routes("v1beta1" if path.startswith("/v1beta1/") else "v1")
    for segments in (path.count("/"), 0):
        for route in routes.get((verb, _action(path), segments), ()):
            if found := route.pattern.fullmatch(path):
                return route.rpc, route.binding, dict(zip(route.fields, found.groups(), strict=True))
    return None


@functools.cache
def _routes(version: str) -> Mapping[tuple[str, str, int], list[_Route]]:
    """Returns the routes of one version of the API by verb, action and number of segments: there are thousands."""
    found: dict[tuple[str, str, int], list[_Route]] = collections.defaultdict(list)
    for rpc in rpc_table(version).values():
        for binding in rpc.bindings:
            segments = 0 if "**" in binding.template else binding.template.count("/")  # ``**`` matches any number
            found[binding.verb, _action(binding.template), segments].append(_compiled(rpc, binding))
    for routes in found.values():
        routes.sort(key=lambda route: -len(_VARIABLE.sub("", route.binding.template)))
    return found


def _action(path: str) -> str:
    """Returns ``cancel`` for a path that ends in ``:cancel``."""
    return path.rpartition("/")[2].partition(":")[2]


def _compiled(rpc: Rpc, binding: HttpBinding) -> _Route:
    pattern, fields, at = "", [], 0
    for variable in _VARIABLE.finditer(binding.template):
        value = re.escape(variable[2] or "*").replace(r"\*\*", ".+").replace(r"\*", "[^/:]+")
        pattern += re.escape(binding.template[at : variable.start()]) + f"({value})"
        fields.append(variable[1])
        at = variable.end()
    return _Route(rpc, binding, re.compile(pattern + re.escape(binding.template[at:])), tuple(fields))


def parse_json(body: bytes) -> Any:
    """Reads a body; raises ApiError (INVALID_ARGUMENT) if it is not JSON."""
    try:
        return read_json(body)
    except BadJson as error:
        raise _invalid("", str(error)) from None


_MASK = "google.protobuf.FieldMask"
_BOOLEANS = {"true": True, "false": False}


def set_parameters(message: Any, parameters: Iterable[tuple[str, str]]) -> None:
    """Sets the fields that query parameters name, in JSON's or protobuf's spelling; raises ApiError."""
    for name, value in parameters:
        try:
            path = FieldPath.of(message.DESCRIPTOR, name.split("."))
            if path.keys:
                raise NoField
        except NoField:
            why = f"Cannot bind query parameter. Field '{name}' could not be found in request message."
            raise _invalid(name, f'Unknown name "{name}": {why}') from None
        _set(path.owner(message), path.field, name, value)


def _set(owner: Any, field: Any, name: str, value: str) -> None:
    if field.message_type is not None and field.message_type.full_name == _MASK:
        getattr(owner, field.name).paths[:] = [path.strip() for path in value.split(",") if path.strip()]
        return
    if field.type == field.TYPE_BOOL and value not in _BOOLEANS:
        raise _invalid(name, f"Invalid value at '{name}' (TYPE_BOOL), \"{value}\"")
    parsed: Any = _BOOLEANS[value] if field.type == field.TYPE_BOOL else value
    if field.enum_type is not None and value.lstrip("-").isdigit():
        parsed = int(value)
    try:
        read = type(owner)()
        json_format.ParseDict({field.name: [parsed] if is_repeated(field) else parsed}, read)
    except json_format.ParseError as error:
        raise _invalid(name, f"Invalid value at '{name}': {error}") from None
    owner.MergeFrom(read)  # adds to a repeated field


def _invalid(name: str, what: str) -> ApiError:
    message = f"Invalid JSON payload received. {what}"
    return ApiError(StatusCode.INVALID_ARGUMENT, message, [FieldViolation(name, message)])


_SYSTEM_PARAMETERS = frozenset(
    "$alt alt $prettyPrint prettyPrint key access_token oauth_token quotaUser fields callback uploadType "
    "upload_protocol $.xgafv".split()
)


def answer_rest(
    api: Api,
    verb: str,
    path: str,
    query: Sequence[tuple[str, str]] = (),
    body: bytes = b"",
    *,
    host: str = "",
    unrecorded: bool = False,
) -> bytes:
    """Answers a request over HTTP with JSON.

    Args:
      api: the API.
      verb: ``GET``, ``POST``, …
      path: the decoded path.
      query: the decoded parameters, in order.
      body: the raw body.
      host: the host, without a port.
      unrecorded: whether the request is from the harness itself, which hits no fault and is not recorded.

    Raises:
      ApiError: the error for the client; see :func:`error_answer`.
    """
    for what, text in [("path", path), *(("query", name + value) for name, value in query)]:
        try:
            text.encode()
        except UnicodeError:
            raise invalid_argument(f"The {what} of the request is not UTF-8.") from None
    route = find_route(verb, path)
    if route is None:
        raise ApiNotEmulated(f"{PRODUCT} does not emulate {verb} {path}: no method is bound to it")
    rpc, binding, values = route
    message = rpc.request()
    if binding.body:
        part = message if binding.body == "*" else getattr(message, binding.body)
        _read_body(part, body, "" if part is message else binding.body)
        if part is not message:
            part.SetInParent()
    set_parameters(message, [pair for pair in query if pair[0] not in _SYSTEM_PARAMETERS])
    set_parameters(message, values.items())
    answers = api.stream(rpc.path, message.SerializeToString(), host=host, transport="" if unrecorded else "rest")
    as_numbers = any(name == "$alt" and "enum-encoding=int" in value for name, value in query)
    try:
        items = [
            json_format.MessageToJson(rpc.response.FromString(each), use_integers_for_enums=as_numbers)
            for each in answers
        ]
    except json_format.SerializeToJsonError as error:  # a client may have written NaN over gRPC
        raise ApiError(StatusCode.INTERNAL, f"The answer cannot be JSON: {error} Use gRPC instead.") from None
    return (f"[{','.join(items)}]" if rpc.streams else items[0]).encode()


def error_answer(error: ApiError) -> tuple[int, bytes]:
    """Returns the status and the JSON of an error, in the form of Google's APIs."""
    if isinstance(error, ApiNotEmulated):
        return NOT_EMULATED, json.dumps(not_emulated(error.message), indent=2).encode()
    body: dict[str, Any] = {"code": error.code.http_status, "message": error.message, "status": error.code.value}
    if details := json_format.MessageToDict(to_status(error)).get("details"):
        body["details"] = details
    return error.code.http_status, json.dumps({"error": body}, indent=2).encode()


def _read_body(part: Any, body: bytes, field: str) -> None:
    if not body.strip():
        return
    document = parse_json(body)
    try:
        if not isinstance(document, dict):
            raise ValueError('Unknown name "": Root element must be a message.')
        json_format.Parse(body, part)  # parses the body again, to refuse duplicate names
    except (json_format.ParseError, RecursionError, ValueError) as error:
        if misspelt := [FieldViolation(each.field, each.message) for each in misspelt_accelerators(document, field)]:
            raise ApiError(
                StatusCode.INVALID_ARGUMENT, "\n".join(each.message for each in misspelt), misspelt
            ) from None
        raise _invalid(field, str(error)) from None  # the library's text says what is wrong, and where
