"""Operations: their results, errors and metadata; get, list, wait, cancel, delete."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("google.cloud.aiplatform_v1", reason="needs the extra vertex")

from google.protobuf import empty_pb2

from t5x_harness.google.vertex.wire.errors import ApiError, StatusCode

PARENT = "projects/t5x-harness/locations/us-central1"
NUMBERED = "projects/100000000000/locations/us-central1"
Ask = Callable[..., Any]


def test_a_method_whose_result_is_there_at_once(api: Any, call: Ask) -> None:
    made = call("TensorboardService.CreateTensorboard", parent=PARENT, tensorboard={"display_name": "b"})
    assert made.done
    board = api.services.message("Tensorboard")()
    assert made.response.Unpack(board)
    assert (board.display_name, made.name.partition("/operations/")[0]) == ("b", board.name)
    metadata = api.services.message("CreateTensorboardOperationMetadata")()
    assert made.metadata.Unpack(metadata)
    assert metadata.generic_metadata.create_time.seconds > 0
    assert call("Operations.GetOperation", name=made.name) == made


def test_deletes_tell_of_themselves_where_the_resource_was(api: Any, call: Ask) -> None:
    made = call("TensorboardService.CreateTensorboard", parent=PARENT, tensorboard={"display_name": "b"})
    gone = call("TensorboardService.DeleteTensorboard", name=made.name.partition("/operations/")[0])
    assert gone.name.startswith(f"{NUMBERED}/operations/")
    assert gone.response.Unpack(empty_pb2.Empty())
    assert gone.metadata.Unpack(api.services.message("DeleteOperationMetadata")())


def test_one_that_is_finished_later(api: Any, call: Ask) -> None:
    started = api.services.operations.start(NUMBERED)
    assert not call("Operations.GetOperation", name=started.name).done
    assert not call("Operations.WaitOperation", name=started.name, timeout={"nanos": 1}).done
    finisher = threading.Timer(0.05, api.services.operations.finish, (started.name, empty_pb2.Empty()))
    finisher.start()
    assert call("Operations.WaitOperation", name=started.name).response.Is(empty_pb2.Empty.DESCRIPTOR)
    finisher.join()


def test_one_that_fails(api: Any, call: Ask) -> None:
    started = api.services.operations.start(NUMBERED)
    api.services.operations.finish(started.name, ApiError(StatusCode.RESOURCE_EXHAUSTED, "none left"))
    api.services.operations.finish(started.name, empty_pb2.Empty())  # too late
    failed = call("Operations.GetOperation", name=started.name)
    assert (failed.done, failed.error.code, failed.error.message) == (True, 8, "none left")


def test_cancel_and_delete(api: Any, call: Ask) -> None:
    started = api.services.operations.start(NUMBERED)
    call("Operations.CancelOperation", name=started.name)
    assert call("Operations.GetOperation", name=started.name).error.code == 1
    call("Operations.DeleteOperation", name=started.name)
    for method in ("Get", "Cancel", "Delete", "Wait"):
        with pytest.raises(ApiError, match="NOT_FOUND"):
            call(f"Operations.{method}Operation", name=started.name)


def test_lists_of_operations_have_pages(api: Any, call: Ask) -> None:
    names = {api.services.operations.start(NUMBERED).name for _ in range(3)}
    first = call("Operations.ListOperations", name=PARENT, page_size=2)
    second = call("Operations.ListOperations", name=PARENT, page_size=2, page_token=first.next_page_token)
    assert {o.name for page in (first, second) for o in page.operations} == names
    assert (len(first.operations), second.next_page_token) == (2, "")
    with pytest.raises(ApiError, match="Field: page_size; Message: -1 is negative"):
        call("Operations.ListOperations", name=PARENT, page_size=-1)
    with pytest.raises(ApiError, match="lists operations only without a filter"):
        call("Operations.ListOperations", name=PARENT, filter="done=true")


def test_nobody_waits_for_what_ends(api: Any, call: Ask) -> None:
    from t5x_harness.google.vertex.faults import VertexFault

    started = api.services.operations.start(NUMBERED)
    api.services.faults.arm(VertexFault("stall", "Operations.GetOperation", seconds=3600))
    answers: list[bool] = []

    def ask(method: str) -> None:
        answers.append(call(f"Operations.{method}Operation", name=started.name).done)

    waiting = [threading.Thread(target=ask, args=(method,)) for method in ("Get", "Wait")]
    for thread in waiting:
        thread.start()
    while not (api.services.faults.report()["faults"][0]["met"]):
        pass
    api.close()
    for thread in waiting:
        thread.join()
    assert answers == [False, False]
