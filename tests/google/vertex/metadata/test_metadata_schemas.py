"""The schemas of every store, their requirements on metadata, and many concurrent clients of one store."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from metadata_names import NUMBERED, STORE

STRICT = """
title: mine.Dataset
type: object
additionalProperties: false
required: [rows]
properties:
  rows:
    type: integer
  source:
    type: object
    required: [uri]
    properties:
      uri:
        type: string
"""
Refused = Callable[..., tuple[str, str]]

Call = Callable[..., Any]


def titles(call: Call, text: str) -> list[str]:
    """Returns the titles of the schemas that match a filter."""
    page = call("MetadataService.ListMetadataSchemas", parent=STORE, filter=text, page_size=1000)
    return [schema.schema.partition("\n")[0].removeprefix("title: ") for schema in page.metadata_schemas]


def register(call: Call, schema: str = STRICT, version: str = "1.0.0", **more: Any) -> Any:
    """Registers a schema for artifacts."""
    given = {"schema": schema, "schema_version": version, "schema_type": "ARTIFACT_TYPE"}
    return call("MetadataService.CreateMetadataSchema", parent=STORE, metadata_schema=given, **more)


def test_a_new_store_has_the_schemas_of_the_service(call: Call, create: Call) -> None:
    create("Context", "first")
    found = titles(call, 'schema_title="system*" OR schema_title="google*"')
    assert {"system.Experiment", "system.ExperimentRun", "system.Run", "system.ContainerExecution"} <= set(found)
    assert {"system.Artifact", "system.Dataset", "system.Model", "system.Metrics"} <= set(found)
    assert {"google.VertexModel", "google.VertexDataset", "google.VertexTensorboardRun"} <= set(found)
    assert titles(call, 'schema_title="system.Model"') == ["system.Model"]
    assert len(titles(call, 'schema_title!="system.Model"')) == len(found) - 1
    name = f"{STORE}/metadataSchemas/google-vertex-tensorboard-run-v0-0-1"
    schema = call("MetadataService.GetMetadataSchema", name=name)
    assert (schema.schema, schema.schema_version) == ("title: google.VertexTensorboardRun\ntype: object\n", "0.0.1")


@pytest.mark.parametrize(
    ("noun", "title"),
    [("Artifact", "system.Model"), ("Execution", "system.CustomJobExecution"), ("Context", "system.Experiment")],
)
def test_a_node_without_a_version_gets_the_latest(noun: str, title: str, create: Call) -> None:
    assert create(noun, "first", schema_title=title).schema_version == "0.0.1"


def test_versions_are_ordered_by_their_numbers(call: Call, create: Call) -> None:
    create("Context", "first")
    for version in ("1.2.0", "1.10.0", "1.9.0"):
        register(call, "title: mine.Thing\ntype: object\n", version)
    assert create("Artifact", "a", schema_title="mine.Thing").schema_version == "1.10.0"
    assert create("Artifact", "b", schema_title="mine.Thing", schema_version="1.2.0").schema_version == "1.2.0"


def test_a_schema_that_is_not_registered_is_told(create: Call, call: Call, refused: Refused) -> None:
    create("Context", "first")
    ask = {"parent": STORE, "artifact": {"schema_title": "mine.Thing"}}
    assert refused("MetadataService.CreateArtifact", **ask) == (
        "NOT_FOUND",
        f"MetadataSchema with title mine.Thing is not registered in {NUMBERED}; CreateMetadataSchema registers schemas",
    )
    register(call, "title: mine.Thing\ntype: object\n", "1.0.0")
    ask["artifact"]["schema_version"] = "2.0.0"  # type: ignore[index]
    assert refused("MetadataService.CreateArtifact", **ask) == (
        "NOT_FOUND",
        f"MetadataSchema with title mine.Thing and version 2.0.0 is not registered in {NUMBERED}; "
        "its versions are 1.0.0",
    )


def test_a_schema_is_for_one_kind_of_nodes(refused: Refused) -> None:
    ask = {"parent": STORE, "context": {"schema_title": "system.Model"}, "context_id": "wrong"}
    told = refused("MetadataService.CreateContext", **ask)
    assert told == ("INVALID_ARGUMENT", "The schema 'system.Model' is not one for contexts.")


def test_a_schema_that_is_registered_has_an_id_of_its_own(call: Call, create: Call, refused: Refused) -> None:
    create("Context", "first")
    assert register(call).name == f"{NUMBERED}/metadataSchemas/mine-dataset-v1-0-0"
    assert register(call, version="1.0.1", metadata_schema_id="chosen").name.endswith("/metadataSchemas/chosen")
    given = {"schema": STRICT, "schema_version": "1.0.1"}
    told = refused("MetadataService.CreateMetadataSchema", parent=STORE, metadata_schema=given)
    assert told == ("ALREADY_EXISTS", "MetadataSchema with title mine.Dataset and version 1.0.1 already exists")


@pytest.mark.parametrize(
    ("schema", "version", "text"),
    [
        ("title: nodot", "1.0.0", r"satisfies the following regex: ^[a-z][a-z0-9-_]{2,20}[.][A-Z][a-zA-Z0-9-_]{2,49}$"),
        ("type: object", "1.0.0", "MetadataSchema must include a schema title"),
        ("title: mine.Thing", "1.0", r"schema_version '1.0' does not satisfy the following regex: ^[0-9]+[.][0-9]+"),
        ("title: [", "1.0.0", "The schema is not YAML: while parsing"),
        ("- a list", "1.0.0", "The schema is not a YAML mapping with a title and properties."),
    ],
)
def test_a_schema_that_cannot_be_registered_is_told(
    schema: str, version: str, text: str, create: Call, refused: Refused
) -> None:
    create("Context", "first")
    given = {"schema": schema, "schema_version": version}
    code, message = refused("MetadataService.CreateMetadataSchema", parent=STORE, metadata_schema=given)
    assert code == "INVALID_ARGUMENT"
    assert text in message


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({}, "'rows' is required by the schema."),
        ({"rows": 1, "more": 2}, "'more' is not a property of the schema, which takes only rows, source."),
        ({"rows": 1, "source": {}}, "'source.uri' is required by the schema."),
    ],
)
def test_metadata_is_held_to_a_strict_schema(
    metadata: dict[str, Any], text: str, call: Call, create: Call, refused: Refused
) -> None:
    create("Context", "first")
    register(call)
    fits = create("Artifact", "fits", schema_title="mine.Dataset", metadata={"rows": 1, "source": {"uri": "gs://b"}})
    given = {"schema_title": "mine.Dataset", "metadata": metadata}
    told = refused("MetadataService.CreateArtifact", parent=STORE, artifact=given)
    assert told == ("INVALID_ARGUMENT", f"The metadata does not match the schema 'mine.Dataset': {text}")
    if "more" in metadata:
        change = {"name": fits.name, "metadata": {"more": 2}}
        assert refused("MetadataService.UpdateArtifact", artifact=change) == told


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
