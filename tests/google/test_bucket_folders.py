"""A folder with a folder for each bucket and the root of a server are distinguished."""

from __future__ import annotations

from pathlib import Path

import pytest

from t5x_harness.commands.google_arguments import root_of
from t5x_harness.settings.forms import buckets
from t5x_harness.settings.project import load_project


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root of serve --root, with the bucket b."""
    for name in ("cloud/buckets/bbb", "cloud/.t5x-harness"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path / "cloud"


def test_a_root_given_as_a_folder_of_buckets(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert buckets(str(root)) == str(root / "buckets")
    assert capsys.readouterr().err == (
        f"t5x-harness: the buckets of {root} are the folders in {root}/buckets, as serve --root has them\n"
    )
    (root.parent / "pyproject.toml").write_text('[tool.t5x_harness]\ngcs_root = "cloud"\n')
    assert load_project(root.parent).layer["gcs_root"] == str(root / "buckets")


@pytest.mark.parametrize("names", [(), ("my-bucket",), ("buckets", "my-bucket")])
def test_a_folder_of_buckets_is_itself(
    names: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in names:
        (tmp_path / name).mkdir()
    assert buckets(str(tmp_path)) == str(tmp_path)
    assert capsys.readouterr().err == ""


def test_a_bucket_called_buckets_that_holds_an_object_is_one(tmp_path: Path) -> None:
    (tmp_path / "buckets").mkdir()
    (tmp_path / "buckets" / "object").write_text("")
    assert buckets(str(tmp_path)) == str(tmp_path)


def test_a_folder_of_buckets_given_as_a_root_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "my-bucket").mkdir()
    assert root_of(str(tmp_path), "--root") == tmp_path
    assert capsys.readouterr().err == (
        f"t5x-harness: --root: {tmp_path} has no folder buckets, so it begins without a bucket: gs://my-bucket/x would "
        f"be {tmp_path}/buckets/my-bucket/x; move folders there that are buckets\n"
    )


@pytest.mark.parametrize("name", ["new", "cloud"])
def test_nothing_is_said_of_a_root(name: str, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert root_of(str(root.parent / name), "--root") == root.parent / name
    assert root_of(None, "--root") is None
    assert capsys.readouterr().err == ""
