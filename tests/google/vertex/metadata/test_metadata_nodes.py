"""Artifacts, executions and contexts: the fields that are stored, how nodes change, and how lists find them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from metadata_names import NUMBERED, STORE

Refused = Callable[..., tuple[str, str]]

Call = Callable[..., Any]


@pytest.mark.parametrize("noun", ["Artifact", "Execution", "Context"])
def test_a_node_is_kept_as_it_was_given_once_and_is_found_again(
    noun: str, call: Call, create: Call, refused: Refused
) -> None:
    field = noun.lower()
    assert refused(f"MetadataService.Get{noun}", name=f"{STORE}/{field}s/first") == (
        "NOT_FOUND",
        f"Resource not found.; Get{noun} is unable to find {field} resource with name: {NUMBERED}/{field}s/first",
    )
    made = create(noun, "first", display_name="First", metadata={"a": 1, "b": {"c": ["x"]}}, labels={"team": "t"})
    assert made.name == f"{NUMBERED}/{field}s/first"
    assert made.create_time == made.update_time
    found = call(f"MetadataService.Get{noun}", name=f"{STORE}/{field}s/first")
    assert found == made
    assert found.metadata["b"]["c"][0] == "x"
    assert dict(found.labels) == {"team": "t"}
    again = refused(f"MetadataService.Create{noun}", **{"parent": STORE, f"{field}_id": "first", field: {}})
    assert again == ("ALREADY_EXISTS", f"{noun} with name {NUMBERED}/{field}s/first already exists")


def test_a_name_of_something_else_is_told_from_one_that_is_not_there(create: Call, refused: Refused) -> None:
    create("Artifact", "first")
    for name in ("artifacts/first", "contexts/first#members", "contexts/first/contexts/second"):
        code, message = refused("MetadataService.GetContext", name=f"{STORE}/{name}")
        assert code == "INVALID_ARGUMENT"
        assert "contexts/*" in message


def test_the_default_store_is_made_by_its_first_use_and_no_other_is(call: Call, refused: Refused) -> None:
    assert refused("MetadataService.GetMetadataStore", name=STORE)[0] == "NOT_FOUND"
    assert not call("MetadataService.ListContexts", parent=STORE).contexts
    assert call("MetadataService.GetMetadataStore", name=STORE).name == NUMBERED
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
    assert again == ("ALREADY_EXISTS", f"MetadataStore with name {NUMBERED} already exists")
    create("Artifact", "first")
    assert [s.name for s in call("MetadataService.ListMetadataStores", parent=parent).metadata_stores] == [NUMBERED]
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
    assert create("Context", "experiment-Eval-WMT").name == f"{NUMBERED}/contexts/experiment-Eval-WMT"


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
