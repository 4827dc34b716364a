"""Which images there are: those that a glob of --vertex-image stands for."""

from __future__ import annotations

import json

import pytest

from t5x_harness.google.images.service import Catalog, digest_of, tags_list

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
    ],
)
def test_what_a_glob_stands_for_is_there(catalog: Catalog, name: str, reference: str, tags: tuple[str, ...]) -> None:
    image = catalog.find(name, reference)
    assert image is not None
    assert image.tags == tags
    assert catalog.find(name, image.digest) is not None
    manifest = json.loads(image.manifest)
    assert manifest["config"]["digest"] == digest_of(image.config)
    assert image.digest == digest_of(image.manifest)


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("gcr.io/p/trainer", "3"),
        ("gcr.io/p/trainer", "sha256:" + "0" * 64),
        ("gcr.io/p/train", "1"),
        ("us-docker.pkg.dev/p/r/t5x", "v1"),
        ("gcr.io/p/nested", "latest"),
    ],
)
def test_everything_else_is_not(catalog: Catalog, name: str, reference: str) -> None:
    assert catalog.find(name, reference) is None


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
