"""Operations: their results, errors and metadata; get, list, wait, cancel, delete."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("google.cloud.aiplatform_v1", reason="needs the extra vertex")

from google.cloud.aiplatform_v1 import types
from google.protobuf import empty_pb2

from t5x_harness.google.vertex.faults import VertexFault
from t5x_harness.google.vertex.wire.errors import ApiError

PARENT = "projects/t5x-harness/locations/us-central1"
NUMBERED = "projects/100000000000/locations/us-central1"
Ask = Callable[..., Any]


def board(call: Ask, name: str = "b") -> Any:
    """The operation that made a Tensorboard."""
    return call("TensorboardService.CreateTensorboard", parent=PARENT, tensorboard={"display_name": name})


def test_a_method_whose_result_is_there_at_once(call: Ask) -> None:
    made = board(call)
    assert made.done
    found = types.Tensorboard.pb()()
    assert made.response.Unpack(found)
    assert (found.display_name, made.name.partition("/operations/")[0]) == ("b", found.name)
    metadata = types.CreateTensorboardOperationMetadata.pb()()
    assert made.metadata.Unpack(metadata)
    assert metadata.generic_metadata.create_time.seconds > 0
    for method in ("Get", "Wait"):
        assert call(f"Operations.{method}Operation", name=made.name) == made


def test_deletes_tell_of_themselves_where_the_resource_was(call: Ask) -> None:
    gone = call("TensorboardService.DeleteTensorboard", name=board(call).name.partition("/operations/")[0])
    assert gone.name.startswith(f"{NUMBERED}/operations/")
    assert gone.response.Unpack(empty_pb2.Empty())
    assert gone.metadata.Unpack(types.DeleteOperationMetadata.pb()())


def test_cancel_and_delete(call: Ask) -> None:
    made = board(call)
    call("Operations.CancelOperation", name=made.name)
    assert call("Operations.GetOperation", name=made.name) == made, "it is too late to cancel it"
    call("Operations.DeleteOperation", name=made.name)
    for method in ("Get", "Cancel", "Delete", "Wait"):
        with pytest.raises(ApiError, match="NOT_FOUND"):
            call(f"Operations.{method}Operation", name=made.name)


def test_lists_of_operations_have_pages(call: Ask) -> None:
    boards = [board(call).name.partition("/operations/")[0] for _ in range(3)]
    names = {call("TensorboardService.DeleteTensorboard", name=name).name for name in boards}
    first = call("Operations.ListOperations", name=PARENT, page_size=2)
    second = call("Operations.ListOperations", name=PARENT, page_size=2, page_token=first.next_page_token)
    assert {o.name for page in (first, second) for o in page.operations} == names
    assert (len(first.operations), second.next_page_token) == (2, "")
    with pytest.raises(ApiError, match="Field: page_size; Message: -1 is negative"):
        call("Operations.ListOperations", name=PARENT, page_size=-1)
    with pytest.raises(ApiError, match="lists operations only without a filter"):
        call("Operations.ListOperations", name=PARENT, filter="done=true")


def test_nobody_waits_for_what_ends(api: Any, call: Ask) -> None:
    name = board(call).name
    api.services.faults.arm(VertexFault("stall", "Operations.GetOperation", seconds=3600))
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(call, "Operations.GetOperation", name=name)
        while not api.services.faults.report()["faults"][0]["met"]:
            pass
        api.close()
        assert waiting.result().done
