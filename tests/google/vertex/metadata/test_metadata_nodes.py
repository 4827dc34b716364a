"""Artifacts, executions and contexts, and their schemas: what is stored, how it changes, and how lists find it."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from api_calls import NUMBERED_STORE, STORE, Call, Refused


@pytest.mark.parametrize("noun", ["Artifact", "Execution", "Context"])
def test_a_node_is_kept_as_it_was_given_once_and_is_found_again(
    noun: str, call: Call, create: Call, refused: Refused
) -> None:
    field = noun.lower()
    assert refused(f"MetadataService.Get{noun}", name=f"{STORE}/{field}s/first") == (
        "NOT_FOUND",
        f"Resource not found.; Get{noun} is unable to find {field} resource with name: {NUMBERED_STORE}/{field}s/first",
    )
    made = create(noun, "first", display_name="First", metadata={"a": 1, "b": {"c": ["x"]}}, labels={"team": "t"})
    assert made.name == f"{NUMBERED_STORE}/{field}s/first"
    assert made.create_time == made.update_time
    found = call(f"MetadataService.Get{noun}", name=f"{STORE}/{field}s/first")
    assert found == made
    assert found.metadata["b"]["c"][0] == "x"
    assert dict(found.labels) == {"team": "t"}
    again = refused(f"MetadataService.Create{noun}", **{"parent": STORE, f"{field}_id": "first", field: {}})
    assert again == ("ALREADY_EXISTS", f"{noun} with name {NUMBERED_STORE}/{field}s/first already exists")


def test_a_name_of_something_else_is_told_from_one_that_is_not_there(create: Call, refused: Refused) -> None:
    create("Artifact", "first")
    for name in ("artifacts/first", "contexts/first#members", "contexts/first/contexts/second"):
        code, message = refused("MetadataService.GetContext", name=f"{STORE}/{name}")
        assert code == "INVALID_ARGUMENT"
        assert "contexts/*" in message


def test_the_default_store_is_made_by_its_first_use_and_no_other_is(call: Call, refused: Refused) -> None:
    assert refused("MetadataService.GetMetadataStore", name=STORE)[0] == "NOT_FOUND"
    assert not call("MetadataService.ListContexts", parent=STORE).contexts
    assert call("MetadataService.GetMetadataStore", name=STORE).name == NUMBERED_STORE
    other = STORE.replace("default", "mine")
    assert refused("MetadataService.CreateArtifact", parent=other, artifact={})[0] == "NOT_FOUND"


def test_a_store_is_made_deleted_and_made_again(call: Call, refused: Refused, create: Call) -> None:
    parent = STORE.rpartition("/metadataStores")[0]
    made = call("MetadataService.CreateMetadataStore", parent=parent, metadata_store={}, metadata_store_id="default")
    assert made.done
    assert made.metadata.type_url.endswith(".CreateMetadataStoreOperationMetadata")
    again = refused(
        "MetadataService.CreateMetadataStore", parent=parent, metadata_store={}, metadata_store_id="default"
    )
    assert again == ("ALREADY_EXISTS", f"MetadataStore with name {NUMBERED_STORE} already exists")
    create("Artifact", "first")
    (listed,) = call("MetadataService.ListMetadataStores", parent=parent).metadata_stores
    assert listed.name == NUMBERED_STORE
    call("MetadataService.DeleteMetadataStore", name=STORE)
    assert refused("MetadataService.GetArtifact", name=f"{STORE}/artifacts/first")[0] == "NOT_FOUND"
    assert not call("MetadataService.ListArtifacts", parent=STORE).artifacts


def test_a_stale_etag_deletes_nothing(call: Call, create: Call, refused: Refused) -> None:
    made = create("Execution", "first")
    call("MetadataService.UpdateExecution", execution={"name": made.name, "description": "d"})
    code, _ = refused("MetadataService.DeleteExecution", name=made.name, etag=made.etag)
    assert code == "FAILED_PRECONDITION"
    assert call("MetadataService.DeleteExecution", name=made.name).done
    assert refused("MetadataService.GetExecution", name=made.name)[0] == "NOT_FOUND"


@pytest.mark.usefixtures("create")
def test_an_update_may_create(call: Call, refused: Refused) -> None:
    new = {"name": f"{STORE}/artifacts/new", "schema_title": "system.Model"}
    assert refused("MetadataService.UpdateArtifact", artifact=new)[0] == "NOT_FOUND"
    made = call("MetadataService.UpdateArtifact", artifact=new, allow_missing=True)
    assert made.schema_version == "0.0.1"
    assert call("MetadataService.GetArtifact", name=new["name"]) == made


def test_an_update_leaves_parents_as_they_are(call: Call, create: Call) -> None:
    parent, child = create("Context", "parent"), create("Context", "child")
    call("MetadataService.AddContextChildren", context=parent.name, child_contexts=[child.name])
    for paths in ([], ["*"], ["parent_contexts"]):
        given = {"name": child.name, "parent_contexts": [], "description": "d"}
        changed = call("MetadataService.UpdateContext", context=given, update_mask={"paths": paths})
        assert list(changed.parent_contexts) == [parent.name]


def test_keys_lose_the_spaces_around_them(create: Call) -> None:
    assert create("Artifact", "first", metadata={" a ": 1, "b": {" c ": 2}}).metadata == {"a": 1, "b": {" c ": 2}}


def test_what_is_too_large_is_told_all_at_once(refused: Refused) -> None:
    node = {"display_name": "x" * 129, "metadata": {"a": "y" * 205_000}}
    code, message = refused("MetadataService.CreateArtifact", parent=STORE, artifact=node)
    assert code == "INVALID_ARGUMENT"
    assert message.startswith(
        "List of found errors:\t"
        "1.Field: artifact.display_name; Message: it has 129 characters; at most 128 are allowed\t"
        "2.Field: artifact.metadata; Message: it has 2050"
    )


def test_an_id_may_have_the_capitals_of_a_folder(create: Call) -> None:
    assert create("Context", "experiment-Eval-WMT").name == f"{NUMBERED_STORE}/contexts/experiment-Eval-WMT"


@pytest.fixture
def three(create: Call) -> list[Any]:
    """Creates three artifacts."""
    given = (
        ("first", "system.Dataset", "LIVE"),
        ("second", "system.Dataset", "PENDING"),
        ("third", "system.Model", "LIVE"),
    )
    return [create("Artifact", name, schema_title=title, state=state) for name, title, state in given]


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('schema_title="system.*"', ["first", "second", "third"]),
        ('schema_title="system.Dataset" AND (state = LIVE)', ["first"]),
        ("state != LIVE", ["second"]),
        (f'name = "{STORE}/artifacts/third"', ["third"]),
    ],
)
def test_a_filter_finds_artifacts(text: str, found: list[str], names: Call) -> None:
    assert names("Artifact", text) == found


def test_times_of_nodes_tell_them_apart(three: list[Any], names: Call) -> None:
    second = three[1].create_time.ToJsonString()
    assert names("Artifact", f'create_time > "{second}"') == ["third"]
    assert names("Artifact", f'create_time <= "{second}"') == ["first", "second"]


@pytest.mark.parametrize("noun", ["Artifact", "Execution", "Context"])
def test_a_purge_counts_first_and_deletes_when_it_is_forced(
    noun: str, create: Call, call: Call, names: Call, refused: Refused
) -> None:
    from google.cloud.aiplatform_v1.types import metadata_service

    response_kind = getattr(metadata_service, f"Purge{noun}sResponse").pb()
    made = [create(noun, f"old-{number}", display_name="old") for number in range(3)]
    create(noun, "kept", display_name="new")
    told = refused(f"MetadataService.Purge{noun}s", parent=STORE, force=True)
    assert told == ("INVALID_ARGUMENT", "List of found errors:\t1.Field: filter; Message: it is required\t")
    ask = {"parent": STORE, "filter": 'display_name = "old"'}
    for force in (False, True):
        operation = call(f"MetadataService.Purge{noun}s", **ask, force=force)
        assert operation.metadata.type_url.endswith(f".Purge{noun}sMetadata")
        response = response_kind()
        assert operation.response.Unpack(response)
        assert response.purge_count == 3
        assert list(response.purge_sample) == ([] if force else [node.name for node in made])
        assert len(names(noun)) == (1 if force else 4)


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


def titles(call: Call, text: str) -> list[str]:
    """Returns the titles of the schemas that match a filter."""
    page = call("MetadataService.ListMetadataSchemas", parent=STORE, filter=text, page_size=1000)
    return [schema.schema.partition("\n")[0].removeprefix("title: ") for schema in page.metadata_schemas]


def register(call: Call, schema: str = STRICT, version: str = "1.0.0", **more: Any) -> Any:
    """Registers a schema for artifacts."""
    given = {"schema": schema, "schema_version": version, "schema_type": "ARTIFACT_TYPE"}
    return call("MetadataService.CreateMetadataSchema", parent=STORE, metadata_schema=given, **more)


def test_a_new_store_has_the_schemas_of_the_service(call: Call) -> None:
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
    for version in ("1.2.0", "1.10.0", "1.9.0"):
        register(call, "title: mine.Thing\ntype: object\n", version)
    assert create("Artifact", "a", schema_title="mine.Thing").schema_version == "1.10.0"
    assert create("Artifact", "b", schema_title="mine.Thing", schema_version="1.2.0").schema_version == "1.2.0"


def test_a_schema_that_is_not_registered_is_told(call: Call, refused: Refused) -> None:
    ask = {"parent": STORE, "artifact": {"schema_title": "mine.Thing"}}
    assert refused("MetadataService.CreateArtifact", **ask) == (
        "NOT_FOUND",
        f"MetadataSchema with title mine.Thing is not registered in {NUMBERED_STORE}; "
        "CreateMetadataSchema registers schemas",
    )
    register(call, "title: mine.Thing\ntype: object\n", "1.0.0")
    ask["artifact"]["schema_version"] = "2.0.0"  # type: ignore[index]
    assert refused("MetadataService.CreateArtifact", **ask) == (
        "NOT_FOUND",
        f"MetadataSchema with title mine.Thing and version 2.0.0 is not registered in {NUMBERED_STORE}; "
        "its versions are 1.0.0",
    )


def test_a_schema_is_for_one_kind_of_nodes(refused: Refused) -> None:
    ask = {"parent": STORE, "context": {"schema_title": "system.Model"}, "context_id": "wrong"}
    told = refused("MetadataService.CreateContext", **ask)
    assert told == ("INVALID_ARGUMENT", "The schema 'system.Model' is not one for contexts.")


def test_a_schema_that_is_registered_has_an_id_of_its_own(call: Call, refused: Refused) -> None:
    assert register(call).name == f"{NUMBERED_STORE}/metadataSchemas/mine-dataset-v1-0-0"
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
def test_a_schema_that_cannot_be_registered_is_told(schema: str, version: str, text: str, refused: Refused) -> None:
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


@pytest.mark.parametrize("with_etag", [True, False])
def test_one_of_many_writes_with_the_same_etag_and_all_without(two_calls: list[Call], with_etag: bool) -> None:
    made = two_calls[0]("MetadataService.CreateContext", parent=STORE, context_id="same", context={})
    written = {f"key-{number}": number for number in range(16)}

    def update(number: int) -> Any:
        given = {"name": made.name, "metadata": {f"key-{number}": number}, "etag": made.etag if with_etag else ""}
        return two_calls[number % 2]("MetadataService.UpdateContext", context=given)

    assert outcomes(update, 16) == (["ABORTED"] * 15 + ["OK"] if with_etag else ["OK"] * 16)
    found = dict(two_calls[1]("MetadataService.GetContext", name=made.name).metadata)
    assert found.items() <= written.items()
    assert len(found) == (1 if with_etag else 16)


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
