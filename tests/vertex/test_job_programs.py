"""The emulated Vertex AI's knowledge of T5X: which images contain T5X, and how their scripts run here."""

import pytest

from t5x_harness.google.vertex.jobs.programs import find_image
from t5x_harness.vertex.job_programs import PROGRAMS


@pytest.mark.parametrize("uri", ["gcr.io/p/t5x:latest", "us-docker.pkg.dev/p/repo/my-t5x-base@sha256:12"])
def test_t5x_images_run_t5x(uri: str) -> None:
    image = find_image(uri, {}, PROGRAMS.entry_point)
    assert image.entry_point == ("python", "-m", "t5x.main")
    assert PROGRAMS.runs(image.entry_point)


def test_a_project_s_name_makes_no_image_t5x() -> None:
    assert not find_image("gcr.io/t5x-team/trainer:1", {}, PROGRAMS.entry_point).known


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["python", "./t5x/t5x/infer.py"], ["python", "-m", "t5x.infer", "--gin.X=1"]),
        (["/usr/bin/python3.10", "/t5x/t5x/main.py"], ["/usr/bin/python3.10", "-m", "t5x.main", "--gin.X=1"]),
        (["python3", "t5x/t5x/eval.py"], ["python3", "-m", "t5x.eval", "--gin.X=1"]),
        (["python", "/home/t5x/t5x/eval.py"], ["python", "/home/t5x/t5x/eval.py", "--gin.X=1"]),
        (["cat", "./t5x/t5x/infer.py"], ["cat", "./t5x/t5x/infer.py", "--gin.X=1"]),
        (
            ["bash", "-c", "cd / && python3 ./t5x/t5x/infer.py --gin_file=a.gin"],
            ["bash", "-c", "cd / && python3 -m t5x.infer --gin_file=a.gin", "--gin.X=1"],
        ),
        (
            ["bash", "-c", "A=1 /usr/bin/python3.11 /t5x/t5x/main.py --run_mode=eval"],
            ["bash", "-c", "A=1 /usr/bin/python3.11 -m t5x.main --run_mode=eval", "--gin.X=1"],
        ),
    ],
)
def test_scripts_of_the_images_checkout_run_as_modules(command: list[str], words: list[str]) -> None:
    made = PROGRAMS.with_modules([*command, "--gin.X=1"])
    assert made == words
    assert PROGRAMS.runs(made) == ("t5x." in " ".join(words))


def test_a_long_argument_is_read_once() -> None:
    """Matching again from each character would take so long that the server, with a single thread, could not answer."""
    words = ["sh", "-c", "x" * 2_000_000, "/" * 2_000_000]
    assert PROGRAMS.with_modules(words) == words


def test_a_job_stands_for_one_on_a_tpu_which_has_its_own_numbers() -> None:
    made = PROGRAMS.environment({"T5X_HARNESS_TPU_NUMERICS": "1", "PATH": "/bin"}, True, None, None)
    assert made["T5X_HARNESS_TPU_NUMERICS"] == ""


@pytest.mark.parametrize(("exact", "is_cheap"), [("", True), ("0", True), ("1", False)])
def test_jobs_are_compiled_as_t5x_does_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, exact: str, is_cheap: bool
) -> None:
    monkeypatch.setenv("T5X_HARNESS_EXACT_NUMERICS", exact)
    made = PROGRAMS.environment({"PATH": "/bin"}, True, None, None)
    assert ("xla_backend_optimization_level" in made.get("XLA_FLAGS", "")) is is_cheap
