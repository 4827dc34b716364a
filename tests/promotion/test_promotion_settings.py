"""Where promoted tests would run: asked for all at once, from every place that may say it, and shown in the header."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., pytest.RunResult]

TEST = """
import pytest

@pytest.mark.tpu(accelerator_type="TPU_V3", accelerator_count=8)
def test_it(t5x_run):
    assert False, "not reached"
"""


@pytest.fixture
def run(pytester: pytest.Pytester, imported: None, monkeypatch: pytest.MonkeyPatch, run_pytest: Run) -> Run:
    """Runs pytest on one promotable test; whatever comes of it, no traceback of ours may be shown."""
    for name in ("", "_PROJECT", "_LOCATION", "_BUCKET", "_IMAGE"):
        monkeypatch.delenv(f"T5X_HARNESS_VERTEX{name}", raising=False)
    pytester.makepyfile(test_promoted=TEST)

    def call(*arguments: str) -> pytest.RunResult:
        result = run_pytest("--t5x-runtime=embedded", *arguments)
        for text in (result.stdout, result.stderr):
            text.no_fnmatch_line("*Traceback*")
            text.no_fnmatch_line("*INTERNALERROR*")
        return result

    return call


def test_everything_that_is_missing_is_named_at_once(run: Run) -> None:
    result = run("-m", "tpu")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "ERROR: tests are promoted to TPU jobs, and no Vertex AI target is configured. Missing:",
            "    project: --t5x-vertex-project=… or T5X_HARNESS_VERTEX_PROJECT",
            "    location: --t5x-vertex-location=… or T5X_HARNESS_VERTEX_LOCATION",
            "    bucket: --t5x-vertex-bucket=… or T5X_HARNESS_VERTEX_BUCKET",
            "    image: --t5x-vertex-image=… or T5X_HARNESS_VERTEX_IMAGE",
            "    or [[]tool.t5x_harness.vertex[]] of pyproject.toml, or a conftest's own fixture vertex_target",
            "    without a cloud: --t5x-vertex=emulated runs the jobs on this machine, against an emulated Vertex AI; "
            "--t5x-tpu-dry-run shows them with placeholders",
        ]
    )
    result.stdout.fnmatch_lines(["t5x-harness: -m 'tpu' promotes * to jobs on Vertex AI (no target is configured)"])


def test_a_dry_run_without_a_target_shows_the_job_with_placeholders(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_promoted="""
        import pytest

        @pytest.mark.tpu(accelerator_type="TPU_V3", accelerator_count=8, ship=True, strategy="SPOT", env={"A": "1"})
        def test_it():
            pass
        """
    )
    result = run("-m", "tpu", "--t5x-tpu-dry-run", "--t5x-vertex-project=mine")
    result.stdout.fnmatch_lines(
        [
            "*where: project mine, your-region1",
            "placeholders, to be given before it is sent: location (--t5x-vertex-location or "
            "T5X_HARNESS_VERTEX_LOCATION), "
            "bucket (--t5x-vertex-bucket or T5X_HARNESS_VERTEX_BUCKET), image (--t5x-vertex-image or "
            "T5X_HARNESS_VERTEX_IMAGE)",
            "*    env {",
            '*      name: "A"',
            "*    strategy: SPOT",
        ]
    )
    result.assert_outcomes(skipped=1)


def test_each_place_may_name_a_part(run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T5X_HARNESS_VERTEX_PROJECT", "mine")
    pytester.makefile(".ini", pytest="[pytest]\nt5x_vertex_location = europe-west4\nt5x_vertex_project = nor-this\n")
    pytester.makepyprojecttoml('[tool.t5x_harness.vertex]\nimage = "repo/t5x:1"\nproject = "not-this-one"\n')
    result = run("-m", "tpu")
    lines = [line for line in result.stderr.lines if line.startswith("    ") and ": --t5x-vertex-" in line]
    assert lines == ["    bucket: --t5x-vertex-bucket=… or T5X_HARNESS_VERTEX_BUCKET"]
    header = run("-m", "tpu", "--t5x-vertex-bucket=my-bucket", "--collect-only").stdout
    header.fnmatch_lines(["t5x-harness: *to jobs on Vertex AI (project mine, europe-west4, image repo/t5x:1)"])


def test_the_emulated_one_needs_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = ["t5x-harness: -m 'tpu and not slow' promotes * an emulated Vertex AI on this machine (project *"]
    run("-m", "tpu and not slow", "--t5x-vertex=emulated", "--collect-only").stdout.fnmatch_lines(expected)
    monkeypatch.setenv("T5X_HARNESS_VERTEX", "emulated")
    run("-m", "tpu and not slow", "--collect-only").stdout.fnmatch_lines(expected)


def test_a_shell_of_serve_has_the_emulated_one(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Jobs of such a shell never get to Google, so none may be called a job of the real service."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:1")
    monkeypatch.setenv("T5X_HARNESS_GCS_ROOT", str(tmp_path))
    header = ["t5x-harness: -m 'tpu' promotes * to jobs on an emulated Vertex AI on this machine (project {}, *"]
    run("-m", "tpu", "--collect-only").stdout.fnmatch_lines([header[0].format("t5x-harness")])
    target = [
        "--t5x-vertex-project=mine",
        "--t5x-vertex-location=us-central1",
        "--t5x-vertex-bucket=bucket",
        "--t5x-vertex-image=i:1",
    ]
    run("-m", "tpu", "--collect-only", "--t5x-vertex=real", *target).stdout.fnmatch_lines([header[0].format("mine")])


def test_an_expression_that_promotes_nothing_says_so(run: Run) -> None:
    result = run("-m", "smoke or tpu", "--collect-only")
    result.stdout.fnmatch_lines(
        ["t5x-harness: -m 'smoke or tpu' also selects tests that are not marked tpu, so none is promoted *"]
    )
    result.assert_outcomes()


@pytest.mark.parametrize("arguments", [(), ("-m", "not tpu"), ("-m", "smoke")])
def test_other_expressions_have_no_line_and_ask_for_no_target(run: Run, arguments: tuple[str, ...]) -> None:
    result = run(*arguments, "--collect-only")
    assert result.ret in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    result.stdout.no_fnmatch_line("*to jobs on*")


def test_a_fixture_may_give_the_target(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest
        from t5x_harness.vertex.target import VertexTarget

        @pytest.fixture(scope="session")
        def vertex_target():
            return VertexTarget("theirs", "us-central1", "their-bucket", "their/t5x:2")
        """
    )
    assert run("-m", "tpu", "--collect-only").ret == pytest.ExitCode.OK


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--t5x-vertex-bucket=gs://b/x"], "*bucket 'gs://b/x' is not a bucket's name: give the name alone*"),
        (["--t5x-vertex-location=us-central1-a"], "*location 'us-central1-a' is not a region*"),
        (
            ["--t5x-tpu-max-chip-hours=lots"],
            "*--t5x-tpu-max-chip-hours: must be a positive number, not 'lots'*",
        ),
        (["--t5x-tpu-parallel=0"], "*argument --t5x-tpu-parallel: must be a whole number from 1 up, not '0'*"),
        (["-o", "t5x_tpu=accelerator=TPU_V3"], "*t5x_tpu: no argument 'accelerator': did you mean accelerator_*"),
        (["-o", "t5x_tpu=TPU_V3"], "*t5x_tpu: 'TPU_V3' is not a NAME = VALUE, such as accelerator_type = TPU_V3*"),
        (["-o", "t5x_vertex=fake"], "*t5x_vertex must be real or emulated, not 'fake'*"),
    ],
)
def test_a_wrong_value_is_told_before_anything_runs(run: Run, arguments: list[str], message: str) -> None:
    emulated = [] if any("t5x_vertex" in argument for argument in arguments) else ["--t5x-vertex=emulated"]
    result = run("-m", "tpu", *emulated, *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])


def test_a_mistake_in_the_projects_table_has_its_line(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyprojecttoml("[tool.t5x_harness.tpu]\nsteps = 8\naccelerator_typ = 'TPU_V3'\n")
    result = run("-m", "tpu", "--t5x-vertex=emulated")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*pyproject.toml:3: tpu: no argument 'accelerator_typ': did you mean accelerator_type?"]
    )


def test_the_options_are_documented(pytester: pytest.Pytester) -> None:
    text = pytester.runpytest_subprocess("--help").stdout.str()
    for option in (
        "--t5x-vertex={real,emulated}",
        "--t5x-vertex-project",
        "--t5x-tpu-max-chip-hours",
        "--t5x-tpu-dry-run",
        "--t5x-tpu-reuse",
    ):
        assert option in text
    for ini in ("t5x_vertex ", "t5x_vertex_bucket", "t5x_tpu "):
        assert ini in text


ZONES = """
import pytest

pytestmark = pytest.mark.tpu(accelerator_type="TPU_V3", accelerator_count=8, region="us-central1-a")

def test_config(t5x_run):
    t5x_run("run.gin")

@pytest.mark.tpu(ship=True)
def test_shipped():
    pass
"""


def test_a_zone_in_a_marker_fails_its_tests_and_not_the_session(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makefile(".gin", run="include 't5x/configs/runs/pretrain.gin'\n")
    pytester.makepyfile(test_promoted=ZONES)
    result = run("-m", "tpu", "--t5x-vertex=emulated")
    result.assert_outcomes(failed=1, errors=1)  # before anything of the test that calls t5x_run is set up
    wrong = "region='us-central1-a': location 'us-central1-a' is not a region: give one such as us-central1, not a zone"
    result.stdout.fnmatch_lines([f"@pytest.mark.tpu: {wrong}", f"test_shipped was not sent as a job: {wrong}"])
    result.stdout.no_fnmatch_line("During handling of *")
