"""The images that the globs of --vertex-image declare, and gcloud's requests to registries and Artifact Registry."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from asking import ask, run_command

from t5x_harness.google.images.service import Catalog, digest_of, tags_list
from t5x_harness.google.session import EmulatedCloud
from t5x_harness.google.vertex.settings import VertexOptions

IMAGES = {
    "gcr.io/p/trainer:1": "python -m trainer",
    "gcr.io/p/trainer:2": "python -m trainer",
    "gcr.io/p/nested/eval*": "",
    "us-docker.pkg.dev/p/r/t5x": "",
    "*/anything*": "",
}


@pytest.fixture
def catalog() -> Catalog:
    return Catalog(IMAGES)


@pytest.mark.parametrize(
    ("name", "reference", "tags"),
    [
        ("gcr.io/p/trainer", "1", ("1", "2")),
        ("gcr.io/p/trainer", "", ("1", "2")),
        ("gcr.io/p/nested/eval", "v7", ("latest", "v7")),
        ("gcr.io/p/nested/evaluator", "latest", ("latest",)),
        ("us-docker.pkg.dev/p/r/t5x", "latest", ("latest",)),
        ("eu.gcr.io/q/anything", "x", ("latest", "x")),
        ("gcr.io/p/trainer", "3", None),
        ("gcr.io/p/trainer", "sha256:" + "0" * 64, None),
        ("gcr.io/p/train", "1", None),
        ("us-docker.pkg.dev/p/r/t5x", "v1", None),
        ("gcr.io/p/nested", "latest", None),
    ],
)
def test_only_what_a_glob_stands_for_is_there(
    catalog: Catalog, name: str, reference: str, tags: tuple[str, ...] | None
) -> None:
    image = catalog.find(name, reference)
    if image is None:
        assert tags is None
        return
    assert image.tags == tags
    assert catalog.find(name, image.digest) is not None
    manifest = json.loads(image.manifest)
    assert manifest["config"]["digest"] == digest_of(image.config)
    assert image.digest == digest_of(image.manifest)


def test_names_have_digests_of_their_own(catalog: Catalog) -> None:
    found = [catalog.find("gcr.io/p/trainer"), catalog.find("us-docker.pkg.dev/p/r/t5x")]
    assert len({image.digest for image in found if image}) == 2


def test_lists_have_what_globs_name(catalog: Catalog) -> None:
    assert [image.name for image in catalog.below("gcr.io/p/")] == ["gcr.io/p/trainer", "gcr.io/p/nested/eval"]
    assert [image.name for image in catalog.below("us-docker.pkg.dev/p/r/")] == ["us-docker.pkg.dev/p/r/t5x"]
    assert catalog.has_any("us-docker.pkg.dev/p/r/")
    assert not catalog.has_any("us-docker.pkg.dev/p/s/")
    listed = tags_list(catalog, "gcr.io", "p")
    assert listed == {"name": "p", "tags": [], "manifest": {}, "child": ["trainer", "nested"]}
    assert tags_list(catalog, "gcr.io", "none") is None


DECLARED = {"gcr.io/p/trainer:1": "", "us-docker.pkg.dev/p/r/t5x*": ""}
REPOSITORY = "/v1/projects/p/locations/us/repositories/r"


@pytest.fixture(scope="module")
def session() -> Iterator[EmulatedCloud]:
    with EmulatedCloud(vertex=VertexOptions(images=DECLARED)) as session:
        yield session


def test_artifact_registry_lists_what_was_declared(session: EmulatedCloud) -> None:
    def artifacts(path: str) -> Any:
        return ask(session, "artifactregistry.googleapis.com", path)

    assert artifacts(REPOSITORY)["format"] == "DOCKER"
    (image,) = artifacts(f"{REPOSITORY}/dockerImages")["dockerImages"]
    uri, _, digest = image["uri"].partition("@")
    assert (uri, image["tags"]) == ("us-docker.pkg.dev/p/r/t5x", ["latest"])
    assert artifacts(f"{REPOSITORY}/dockerImages/t5x@{digest}") == image
    tag = artifacts(f"{REPOSITORY}/packages/t5x/tags/v2")
    assert tag["version"].endswith(f"/packages/t5x/versions/{digest}")
    assert artifacts(f"{REPOSITORY}/packages/t5x/versions/{digest}")["name"] == tag["version"]
    (version,) = artifacts(f"{REPOSITORY}/packages/t5x/versions")["versions"]
    assert [each["name"].rpartition("/")[2] for each in version["relatedTags"]] == ["latest"]
    for missing in ("/packages/other/tags/v1", "/packages/t5x/versions/sha256:0", "/dockerImages/other"):
        error = artifacts(REPOSITORY + missing)["error"]
        assert (error["code"], error["status"]) == (404, "NOT_FOUND")
    error = artifacts("/v1/projects/p/locations/us/repositories/other")["error"]
    assert error["message"] == (
        "Requested entity was not found. t5x-harness has the images that --vertex-image names: "
        "/v1/projects/p/locations/us/repositories/other"
    )


@pytest.fixture
def gcloud(session: EmulatedCloud, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    if shutil.which("gcloud") is None:
        pytest.skip("gcloud is not installed")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **session.environment(), "HOME": str(tmp_path)}
        return run_command("gcloud", *words, env=environment, cwd=tmp_path)

    return run


@pytest.mark.journey
def test_container_images(gcloud: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    described = gcloud("container", "images", "describe", "gcr.io/p/trainer:1", "--format=json")
    summary = json.loads(described.stdout)["image_summary"]
    assert (summary["registry"], summary["repository"]) == ("gcr.io", "p/trainer")
    tags = gcloud("container", "images", "list-tags", "gcr.io/p/trainer", "--format=value(tags,digest)")
    assert (
        tags.stdout.split() == ["1", summary["digest"].removeprefix("sha256:")[:12]] or summary["digest"] in tags.stdout
    )
    missing = gcloud("container", "images", "describe", "gcr.io/p/trainer:2")
    assert missing.returncode == 1
    assert "[gcr.io/p/trainer:2] is not found or is not a valid name" in missing.stderr


@pytest.mark.journey
def test_artifacts_docker_images(gcloud: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    listed = gcloud("artifacts", "docker", "images", "list", "us-docker.pkg.dev/p/r", "--include-tags", "--format=json")
    (image,) = json.loads(listed.stdout)
    assert (image["package"], image["tags"]) == ("us-docker.pkg.dev/p/r/t5x", ["latest"])
    described = gcloud("artifacts", "docker", "images", "describe", "us-docker.pkg.dev/p/r/t5x:v2", "--format=json")
    assert json.loads(described.stdout)["image_summary"]["digest"] == image["version"], described.stderr
    missing = gcloud("artifacts", "docker", "images", "describe", "us-docker.pkg.dev/p/r/other:v2")
    assert missing.returncode == 1
    assert "ERROR: (gcloud.artifacts.docker.images.describe) Image not found." in missing.stderr
