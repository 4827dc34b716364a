"""Which command stands for an image, and how containers compose theirs."""

from __future__ import annotations

import pytest

from t5x_harness.google.vertex.jobs.programs import ImageStandIn, ImageUnknown, find_image

IMAGE = ImageStandIn("gcr.io/p/i:1", ("python", "-m", "main"))


@pytest.mark.parametrize(
    ("command", "args", "words"),
    [
        ([], [], ["python", "-m", "main"]),
        ([], ["--a"], ["python", "-m", "main", "--a"]),
        (["sh"], [], ["sh"]),
        (["sh"], ["-c", "true"], ["sh", "-c", "true"]),
    ],
)
def test_a_command_takes_the_place_of_the_entry_point(command: list[str], args: list[str], words: list[str]) -> None:
    assert IMAGE.command(command, args) == words


def test_an_image_with_nothing_to_run() -> None:
    with pytest.raises(ImageUnknown) as refused:
        ImageStandIn("gcr.io/p/i:1", ()).command([], [])
    assert str(refused.value) == (
        "the image gcr.io/p/i:1 has no entry point here, and container_spec has neither command nor args: give one of "
        "them, or an entry point in the map images"
    )


def test_google_s_images_have_no_entry_point() -> None:
    assert find_image("us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-14.py310:latest", {}).entry_point == ()


def test_the_user_s_map_comes_first_and_its_first_glob_counts() -> None:
    images = {"gcr.io/p/t5x-*": "python 'my main.py'", "*": "true"}
    assert find_image("gcr.io/p/t5x-fork", images) == ImageStandIn("gcr.io/p/t5x-fork", ("python", "my main.py"))
    assert find_image("gcr.io/p/else", images).entry_point == ("true",)


@pytest.mark.parametrize(
    ("uri", "glob"),
    [
        ("gcr.io/p/a:1", "gcr.io/p/a*"),
        ("gcr.io/p/a@sha256:12", "gcr.io/p/a*"),
        ("localhost:5000/a:1", "localhost:5000/a*"),
        ("a", "a*"),
    ],
)
def test_an_unknown_image_without_a_command_is_refused_with_the_line_to_add(uri: str, glob: str) -> None:
    with pytest.raises(ImageUnknown) as refused:
        find_image(uri, {}).command([], ["--a"])
    assert str(refused.value) == (
        f"no local command stands for the image {uri}, whose entry point is not known, and containers are not run "
        "here. Give container_spec a command, or name the entry point in the map images (--vertex-image): "
        f"{{{glob!r}: 'python -m trainer.task'}}"
    )


def test_an_unknown_image_runs_the_command_of_its_spec_and_says_so() -> None:
    image = find_image("gcr.io/p/a:1", {})
    assert image.command(["sh", "-c"], ["true"]) == ["sh", "-c", "true"]
    assert image.note(["sh"]) == (
        "the image gcr.io/p/a:1 is not run: its command 'sh' is looked for on this machine, with the Python "
        "environment of t5x-harness in place of the image's"
    )
    assert find_image("gcr.io/p/a:1", {"gcr.io/p/a*": ""}).note(["sh"]) == ""


def test_reducers_wait_for_the_end_of_the_job() -> None:
    uri = "us-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:latest"
    image = find_image(uri, {})
    assert image.command([], []) == ["sleep", "infinity"]
    assert image.note([]) == f"{uri} reduces nothing here: its replicas wait until the job ends"
