"""Filters, orders and pages of nodes, in the service's documentation and in the SDK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from metadata_names import STORE

Call = Callable[..., Any]


@pytest.fixture
def three(create: Call) -> list[Any]:
    """Three artifacts."""
    return [
        create(
            "Artifact",
            "first",
            display_name="train data",
            schema_title="system.Dataset",
            uri="gs://b/train",
            state="LIVE",
            metadata={"rows": 10, "split": "train", "shuffled": True, "field:1": 1.5, "deep": {"er": 3}},
        ),
        create(
            "Artifact",
            "second",
            display_name="test data",
            schema_title="system.Dataset",
            uri="gs://b/test",
            state="PENDING",
            metadata={"rows": 2, "split": "test", "shuffled": False},
            labels={"team": "eval"},
        ),
        create("Artifact", "third", display_name="model", schema_title="system.Model", state="LIVE"),
    ]


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('display_name = "train data"', ["first"]),
        ('schema_title="system.Dataset"', ["first", "second"]),
        ('schema_title="system.*"', ["first", "second", "third"]),
        ('schema_title="system.Dataset" AND (uri="gs://b/test")', ["second"]),
        ('(schema_title="system.Model" OR schema_title="google.VertexModel")', ["third"]),
        ("state = LIVE", ["first", "third"]),
        ("state != LIVE", ["second"]),
        ("metadata.rows.number_value = 10.0", ["first"]),
        ("metadata.rows.number_value < 10", ["second"]),
        ('metadata.split.string_value = "test"', ["second"]),
        ("metadata.shuffled.bool_value = true", ["first"]),
        ('metadata."field:1".number_value = 1.5', ["first"]),
        ("metadata.deep.struct_value.er.number_value > 2", ["first"]),
        ('labels.team = "eval"', ["second"]),
        ('display_name = "train data" AND metadata.shuffled.bool_value = true', ["first"]),
        ('create_time > "2020-11-19T11:30:00-04:00"', ["first", "second", "third"]),
        ('update_time < "2020-11-19T11:30:00-04:00"', []),
        (f'name = "{STORE}/artifacts/third"', ["third"]),
    ],
)
def test_a_filter_finds_artifacts(text: str, found: list[str], names: Call) -> None:
    assert names("Artifact", text) == found


def test_times_of_nodes_tell_them_apart(three: list[Any], names: Call) -> None:
    second = three[1].create_time.ToJsonString()
    assert names("Artifact", f'create_time > "{second}"') == ["third"]
    assert names("Artifact", f'create_time <= "{second}"') == ["first", "second"]


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    ("order", "found"),
    [
        ("", ["first", "second", "third"]),
        ("create_time desc", ["third", "second", "first"]),
        ("display_name", ["third", "second", "first"]),
        ("schema_title desc, display_name", ["third", "second", "first"]),
    ],
)
def test_lists_have_an_order(order: str, found: list[str], names: Call) -> None:
    assert names("Artifact", order_by=order) == found


@pytest.mark.usefixtures("three")
def test_pages_follow_each_other(call: Call) -> None:
    seen, token = [], ""
    while True:
        page = call("MetadataService.ListArtifacts", parent=STORE, page_size=2, page_token=token)
        seen.append([artifact.name.rpartition("/")[2] for artifact in page.artifacts])
        token = page.next_page_token
        if not token:
            break
    assert seen == [["first", "second"], ["third"]]


@pytest.mark.parametrize("noun", ["Artifact", "Execution", "Context"])
def test_a_purge_counts_first_and_deletes_when_it_is_forced(noun: str, create: Call, call: Call, names: Call) -> None:
    from google.cloud.aiplatform_v1.types import metadata_service

    response_kind = getattr(metadata_service, f"Purge{noun}sResponse").pb()
    made = [create(noun, f"old-{number}", display_name="old") for number in range(3)]
    create(noun, "kept", display_name="new")
    ask = {"parent": STORE, "filter": 'display_name = "old"'}
    for force in (False, True):
        operation = call(f"MetadataService.Purge{noun}s", **ask, force=force)
        assert operation.metadata.type_url.endswith(f".Purge{noun}sMetadata")
        response = response_kind()
        assert operation.response.Unpack(response)
        assert response.purge_count == 3
        assert list(response.purge_sample) == ([] if force else [node.name for node in made])
        assert len(names(noun)) == (1 if force else 4)


def test_a_purge_needs_a_filter(create: Call, refused: Callable[..., tuple[str, str]]) -> None:
    create("Artifact", "first")
    told = refused("MetadataService.PurgeArtifacts", parent=STORE, force=True)
    assert told == ("INVALID_ARGUMENT", "List of found errors:\t1.Field: filter; Message: it is required\t")
