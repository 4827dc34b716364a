"""Concurrent use of the same metadata: by threads of a server, and by servers with one Redis."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from metadata_names import STORE

Call = Callable[..., Any]


def outcomes(call_each: Callable[[int], Any], count: int) -> list[str]:
    """Returns how concurrent calls end: ``OK``, or the code of an error."""
    from t5x_harness.google.vertex.wire.errors import ApiError

    def end(number: int) -> str:
        try:
            call_each(number)
        except ApiError as error:
            return error.code.value
        return "OK"

    with ThreadPoolExecutor(8) as threads:
        return sorted(threads.map(end, range(count)))


def test_one_of_many_makes_a_node(two_calls: list[Call]) -> None:
    def create(number: int) -> Any:
        ask = {"parent": STORE, "context_id": "same", "context": {"display_name": str(number)}}
        return two_calls[number % 2]("MetadataService.CreateContext", **ask)

    assert outcomes(create, 16) == ["ALREADY_EXISTS"] * 15 + ["OK"]
    schemas = two_calls[0]("MetadataService.ListMetadataSchemas", parent=STORE, page_size=1000).metadata_schemas
    assert len(schemas) == len({schema.name for schema in schemas}) == 30


def test_one_of_many_writes_with_the_same_etag(two_calls: list[Call]) -> None:
    made = two_calls[0]("MetadataService.CreateContext", parent=STORE, context_id="same", context={})

    def update(number: int) -> Any:
        given = {"name": made.name, "etag": made.etag, "metadata": {f"key-{number}": number}}
        return two_calls[number % 2]("MetadataService.UpdateContext", context=given)

    assert outcomes(update, 16) == ["ABORTED"] * 15 + ["OK"]
    assert len(two_calls[1]("MetadataService.GetContext", name=made.name).metadata) == 1


def test_writes_without_etags_are_all_kept(two_calls: list[Call]) -> None:
    made = two_calls[0]("MetadataService.CreateContext", parent=STORE, context_id="same", context={})

    def update(number: int) -> Any:
        given = {"name": made.name, "metadata": {f"key-{number}": number}}
        return two_calls[number % 2]("MetadataService.UpdateContext", context=given)

    assert outcomes(update, 16) == ["OK"] * 16
    found = two_calls[1]("MetadataService.GetContext", name=made.name)
    assert dict(found.metadata) == {f"key-{number}": number for number in range(16)}


def test_connections_that_are_made_at_once_are_all_there(two_calls: list[Call]) -> None:
    call = two_calls[0]
    for name in ("experiment", *(f"run-{number}" for number in range(12))):
        call("MetadataService.CreateContext", parent=STORE, context_id=name, context={})
    call("MetadataService.CreateExecution", parent=STORE, execution_id="train", execution={})
    for number in range(12):
        call("MetadataService.CreateArtifact", parent=STORE, artifact_id=f"part-{number}", artifact={})

    def connect(number: int) -> None:
        ask = two_calls[number % 2]
        part, run = f"{STORE}/artifacts/part-{number}", f"{STORE}/contexts/run-{number}"
        ask("MetadataService.AddContextChildren", context=f"{STORE}/contexts/experiment", child_contexts=[run])
        ask(
            "MetadataService.AddContextArtifactsAndExecutions",
            context=f"{STORE}/contexts/experiment",
            artifacts=[part],
        )
        events = [{"artifact": part, "type_": "OUTPUT"}]
        ask("MetadataService.AddExecutionEvents", execution=f"{STORE}/executions/train", events=events)

    assert outcomes(connect, 12) == ["OK"] * 12
    experiment = f"{STORE}/contexts/experiment"
    runs = call("MetadataService.ListContexts", parent=STORE, filter=f'parent_contexts:"{experiment}"').contexts
    parts = call("MetadataService.ListArtifacts", parent=STORE, filter=f'in_context("{experiment}")').artifacts
    graph = call("MetadataService.QueryExecutionInputsAndOutputs", execution=f"{STORE}/executions/train")
    assert (len(runs), len(parts), len(graph.events), len(graph.artifacts)) == (12, 12, 12, 12)
