"""One page of a list: filtered, ordered, cut, and with the fields that were asked for."""

from __future__ import annotations

from typing import Any

from google.protobuf import field_mask_pb2
from google.protobuf.message import Message

from t5x_harness.google.vertex.api.errors import ApiError, Violation
from t5x_harness.google.vertex.api.filters import parse_filter
from t5x_harness.google.vertex.api.handlers import Call
from t5x_harness.google.vertex.api.kinds import Kind
from t5x_harness.google.vertex.api.masks import check_paths
from t5x_harness.google.vertex.api.matching import Matcher
from t5x_harness.google.vertex.api.ordering import in_order
from t5x_harness.google.vertex.api.pages import PageToken, page_bounds

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
    if text := getattr(request, "filter", ""):
        matches = Matcher(parse_filter(text), call.api)
        resources = [resource for resource in resources if matches(resource)]
    resources = in_order(resources, getattr(request, "order_by", ""), newest_first=kind.newest_first)
    first, end = page_bounds([resource.name for resource in resources], request, _page_size(request, kind))
    page = resources[first:end]
    response: Any = call.rpc.response()
    getattr(response, field).extend(_masked(page, getattr(request, "read_mask", None)))
    if end < len(resources):
        response.next_page_token = PageToken(page[-1].name, end).encode(request)
    answer: Message = response
    return answer


def _page_size(request: Any, kind: Kind) -> int:
    size: int = request.page_size
    if size < 0:
        raise ApiError.of_violations([Violation("page_size", f"{size} is negative")])
    return min(size or kind.page, kind.largest_page)


def _masked(page: list[Any], mask: field_mask_pb2.FieldMask | None) -> list[Any]:
    """The resources with the fields of a mask only, and with all if it is empty or ``*``."""
    if not mask or not mask.paths or list(mask.paths) == ["*"] or not page:
        return page
    check_paths(page[0].DESCRIPTOR, mask.paths, "read_mask")
    masked = []
    for resource in page:
        shown = type(resource)()
        mask.MergeMessage(resource, shown)
        masked.append(shown)
    return masked
