"""One page of a list: filtered, ordered, cut, and with the fields that were asked for."""

from __future__ import annotations

from typing import Any

from google.protobuf import field_mask_pb2
from google.protobuf.message import Message

from t5x_harness.google.vertex.messages.filters import parse_filter
from t5x_harness.google.vertex.messages.kinds import Kind, snake_case
from t5x_harness.google.vertex.messages.masks import check_paths
from t5x_harness.google.vertex.messages.matching import Matcher
from t5x_harness.google.vertex.messages.ordering import in_order
from t5x_harness.google.vertex.messages.pages import PageToken, page_bounds, page_size
from t5x_harness.google.vertex.services import Call

__all__ = ["list_page"]


def list_page(call: Call, kind: Kind, resources: list[Any], field: str) -> Message:
    """The response to a List method.

    Args:
      call: its request may have ``filter``, ``order_by``, ``page_size``, ``page_token`` and ``read_mask``.
      kind: of what is listed.
      resources: all of the collection.
      field: of the response that takes them.

    Raises:
      ApiError: INVALID_ARGUMENT: one of these cannot be read.
    """
    request = call.request
    response: Any = call.rpc.response()
    # What can be asked of no resource of the kind is refused where there are none, too.
    blank = getattr(call.rpc.response(), field).add()
    order_by = getattr(request, "order_by", "")
    in_order([blank], order_by, newest_first=False)
    if text := getattr(request, "filter", ""):
        matches = Matcher(parse_filter(text), call.services)
        matches(blank)
        resources = [resource for resource in resources if matches(resource)]
    resources = in_order(resources, order_by, newest_first=kind.newest_first)
    size = page_size(request, kind.page, kind.largest_page)
    first, end = page_bounds([resource.name for resource in resources], request, size)
    paths = request.read_mask.paths if "read_mask" in request.DESCRIPTOR.fields_by_name else ()
    getattr(response, field).extend(_masked(resources[first:end], blank, list(paths)))
    if end < len(resources):
        response.next_page_token = PageToken(resources[end - 1].name, end).encode(request)
    answer: Message = response
    return answer


def _masked(page: list[Any], blank: Any, paths: list[str]) -> list[Any]:
    """The resources with the fields of a mask only, and with all if it is empty or ``*``."""
    if not paths or paths == ["*"]:
        return page
    check_paths(blank.DESCRIPTOR, paths, "read_mask")
    mask = field_mask_pb2.FieldMask(paths=[".".join(map(snake_case, path.split("."))) for path in paths])
    masked = []
    for resource in page:
        shown = type(resource)()
        mask.MergeMessage(resource, shown)
        masked.append(shown)
    return masked
