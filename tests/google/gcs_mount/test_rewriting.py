"""Paths below /gcs are rewritten wherever one can begin, and nothing that only looks alike."""

from __future__ import annotations

import pytest

from t5x_harness.google.gcs_mount import rewrite


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("/gcs/b/x", "/s/buckets/b/x"),
        ("/gcs", "/s/buckets"),
        ("/gcs/", "/s/buckets/"),
        ("--model_dir=/gcs/b/m", "--model_dir=/s/buckets/b/m"),
        ("--gin.MODEL_DIR='/gcs/b/m'", "--gin.MODEL_DIR='/s/buckets/b/m'"),
        ("/gcs/b/one:/gcs/b/two,/gcs/b/three", "/s/buckets/b/one:/s/buckets/b/two,/s/buckets/b/three"),
        ("file:///gcs/b/x", "file:///s/buckets/b/x"),
        ("cat </gcs/b/x >/gcs/b/y", "cat </s/buckets/b/x >/s/buckets/b/y"),
        ("PATHS = ['/gcs/b', \"/gcs/c\"]\n# /gcs\n", "PATHS = ['/s/buckets/b', \"/s/buckets/c\"]\n# /s/buckets\n"),
        ("{'dir': ('/gcs/b', 1)}", "{'dir': ('/s/buckets/b', 1)}"),
    ],
)
def test_paths_are_rewritten(text: str, rewritten: str) -> None:
    assert rewrite(text, "/s") == rewritten


@pytest.mark.parametrize(
    "text",
    [
        "gs://b/gcs/x", "/mnt/gcs/b", "~/gcs/b", "./gcs/b", "$HOME/gcs", "{root}/gcs/b", "https://host/gcs/b",
        "/gcsfuse/b", "/gcs-backup/b", "/gcs.old", "gcs/b", "/GCS/b", "",
    ],
)  # fmt: skip
def test_other_paths_stay(text: str) -> None:
    assert rewrite(text, "/s") == text


def test_a_root_with_odd_characters_is_taken_as_it_is() -> None:
    assert rewrite("/gcs/b", r"/a\1 b") == r"/a\1 b/buckets/b"
