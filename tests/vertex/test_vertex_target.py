"""Where jobs go: values from options, the environment and the project's file, and what is missing named at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from t5x_harness.settings.project import ProjectError, load_project
from t5x_harness.vertex.target import EMULATED, VertexTarget, VertexTargetError, find_target

WHOLE = {"project": "p", "location": "us-central1", "bucket": "my-bucket", "image": "i"}


def test_who_starts_the_job_comes_before_the_environment_and_that_before_the_project() -> None:
    environment = {"T5X_HARNESS_VERTEX_PROJECT": "of-env", "T5X_HARNESS_VERTEX_LOCATION": "europe-west4"}
    found = find_target({"project": "given", "image": None}, environment, {**WHOLE, "location": "us-east1"})
    assert found == VertexTarget("given", "europe-west4", "my-bucket", "i")


def test_everything_that_is_missing_is_named_at_once() -> None:
    with pytest.raises(VertexTargetError) as caught:
        find_target({"project": "p"}, {"T5X_HARNESS_VERTEX_IMAGE": ""}, {})
    assert caught.value.missing == ("location", "bucket", "image")
    assert str(caught.value) == (
        "no Vertex AI target: location, bucket, image are not set; set T5X_HARNESS_VERTEX_LOCATION, "
        "T5X_HARNESS_VERTEX_BUCKET, T5X_HARNESS_VERTEX_IMAGE, or write location, bucket, image into "
        "[tool.t5x_harness.vertex] of pyproject.toml"
    )


def test_the_private_google_needs_nothing_to_be_named() -> None:
    found = find_target({}, {"T5X_HARNESS_VERTEX_BUCKET": "mine-then"}, {}, EMULATED)
    assert (found.bucket, found.location) == ("mine-then", "us-central1")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("bucket", "gs://my-bucket", "give the name alone, as my-bucket of gs://my-bucket/folder"),
        ("bucket", "My Bucket", "is not a bucket's name"),
        ("experiment", "e" * 99, "is not a valid name: lowercase letters, digits and -, at most 98"),
        ("experiment", "My experiment", "is not a valid name: lowercase letters, digits and -, at most 98"),
        ("location", "us-central1-a", "give one such as us-central1, not a zone"),
    ],
)
def test_a_value_that_cannot_be_one_is_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(VertexTargetError, match=message):
        VertexTarget(**{**WHOLE, name: value})


def test_the_projects_file_has_a_table_for_it(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.t5x_harness.vertex]\nproject = "p"\nimage = "i"\n')
    assert load_project(tmp_path).vertex == {"project": "p", "image": "i"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[tool.t5x_harness.vertex]\nproject = "p"\nbuckets = "b"\n', ":3: unknown key 'buckets': did you mean bucket"),
        ("[tool.t5x_harness.vertex]\nproject = 1\n", ":2: project has to be a string, not 1"),
        ("[tool.t5x_harness]\nvertex = 1\n", ":2: vertex has to be a table"),
    ],
)
def test_a_mistake_in_the_table_has_its_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(ProjectError) as caught:
        load_project(tmp_path)
    assert message in str(caught.value)
