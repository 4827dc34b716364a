"""Where promoted tests would run: all missing values are named at once, and many places may set them, even fixtures."""

import functools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from t5x_harness.google.gcs import FakeGcs
from t5x_harness.google.vertex_admin import FakeVertex
from t5x_harness.sample_tasks import CONFIGS

Run = Callable[..., pytest.RunResult]

TEST = """
import pytest

@pytest.mark.tpu(accelerator_type="TPU_V3", accelerator_count=8)
def test_it(t5x_run):
    assert False, "not reached"
"""


@pytest.fixture
def run(pytester: pytest.Pytester, run_pytest: Run) -> Run:
    """Runs pytest on one promotable test."""
    pytester.makepyfile(test_promoted=TEST)
    return run_pytest


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
    """Jobs from such a shell never reach Google, so none may be called a job of the real service."""
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--t5x-vertex-bucket=gs://b/x"],
            "*--t5x-vertex-bucket 'gs://b/x' is not a bucket's name: give the name*",
        ),
        (["--t5x-vertex-location=us-central1-a"], "*--t5x-vertex-location 'us-central1-a' is not a region*"),
        (
            ["--t5x-tpu-max-chip-hours=lots"],
            "*--t5x-tpu-max-chip-hours must be a positive number, not 'lots'*",
        ),
        (["--t5x-tpu-parallel=0"], "*--t5x-tpu-parallel must be a whole number from 1 up, not '0'*"),
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
    result.assert_outcomes(failed=1, errors=1)  # before any setup of the test that calls t5x_run
    wrong = "region='us-central1-a': location 'us-central1-a' is not a region: give one such as us-central1, not a zone"
    result.stdout.fnmatch_lines([f"*.py:3: @pytest.mark.tpu: {wrong}", f"test_shipped was not sent as a job: {wrong}"])
    result.stdout.no_fnmatch_line("During handling of *")


FIXTURE = """
import pytest
from t5x_harness.vertex.target import VertexTarget

@pytest.fixture(scope="{scope}")
def vertex_target({arguments}):
    return {value}
"""
TESTS = """
import pytest

def test_run(t5x_run):
    t5x_run("infer.gin")

@pytest.mark.tpu(ship=True, region="europe-west4")
def test_ship():
    pass

class TestOwn:
    @pytest.fixture
    def vertex_target(self, vertex_target):
        import dataclasses
        return dataclasses.replace(vertex_target, bucket="class-bucket")

    @pytest.mark.tpu(ship=True)
    def test_own(self):
        pass
"""


@pytest.fixture
def run_tpu(pytester: pytest.Pytester, run_pytest: Run) -> Run:
    """Runs pytest in a project that names the machine for tests, while no option, variable or file names a target."""
    pytester.makepyprojecttoml('[tool.t5x_harness.tpu]\naccelerator_type = "TPU_V3"\naccelerator_count = 8\n')
    return functools.partial(run_pytest, "-m", "tpu")


def fixture(value: str, scope: str = "session", arguments: str = "") -> str:
    """Returns the source of a conftest with the fixture ``vertex_target``."""
    return FIXTURE.format(value=value, scope=scope, arguments=arguments)


@pytest.mark.journey
def test_every_kind_of_item_goes_where_the_closest_fixture_says(run_tpu: Run, pytester: pytest.Pytester) -> None:
    below = pytester.mkpydir("below")
    theirs = 'VertexTarget("theirs", "us-central1", "their-bucket", "their/t5x:2")'
    pytester.makeconftest(fixture(theirs))
    (below / "conftest.py").write_text(fixture(theirs.replace("their-b", "other-b"), "package"))
    for folder, name in ((pytester.path, "infer"), (below, "lower")):
        shutil.copy(CONFIGS / "infer_answer.gin", folder / f"{name}.gin")
    pytester.makepyfile(test_kinds=f"import pytest\npytestmark = pytest.mark.tpu()\n{TESTS}")
    (below / "test_lower.py").write_text(
        "import pytest\n\n@pytest.mark.tpu(ship=True)\ndef test_lower_ship():\n    pass\n"
    )
    result = run_tpu("--t5x-tpu-dry-run", "infer.gin", "below/lower.gin", "test_kinds.py", "below/test_lower.py")
    result.assert_outcomes(passed=6, skipped=6)
    assert _places(result.stdout.lines) == {
        "infer": ("their-bucket", "us-central1"),
        "test-run": ("their-bucket", "us-central1"),
        "test-ship": ("their-bucket", "europe-west4"),
        "test-own": ("class-bucket", "us-central1"),
        "lower": ("other-bucket", "us-central1"),
        "test-lower-ship": ("other-bucket", "us-central1"),
    }


MEET = """
import pathlib
import time

import pytest

pytestmark = pytest.mark.tpu(ship=True, timeout=60)

@pytest.mark.parametrize(("mine", "other"), [("a", "b"), ("b", "a")])
def test_meets(mine, other):
    folder = pathlib.Path("/gcs/their-bucket/met")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / mine).write_text("here")
    while not (folder / other).exists():
        time.sleep(0.1)
"""


def test_shipped_tests_run_together_where_the_first_of_them_was_told(
    run_tpu: Run, vertex: FakeVertex, fake_gcs: FakeGcs, pytester: pytest.Pytester
) -> None:
    """Each test waits for the other."""
    pytester.makeconftest(fixture('VertexTarget("theirs", "us-central1", "their-bucket", "their/t5x:2")'))
    pytester.makepyfile(test_meet=MEET)
    run_tpu("--t5x-vertex=emulated").assert_outcomes(passed=2)
    assert fake_gcs.buckets() == ["their-bucket"]
    assert vertex.jobs() == []  # the jobs of the default project


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (fixture("None"), "the fixture vertex_target has to return a VertexTarget of t5x_harness.*, not None"),
        (
            fixture("None", "module"),
            "the fixture vertex_target for infer.gin::lint has the scope module, and a gin config is in no module: *",
        ),
        (fixture("no_such_name"), "E   *NameError: name 'no_such_name' is not defined"),
    ],
)
def test_a_fixture_that_gives_no_target_is_the_items_error(
    run_tpu: Run, pytester: pytest.Pytester, source: str, message: str
) -> None:
    pytester.makeconftest(source)
    shutil.copy(CONFIGS / "infer_answer.gin", pytester.path / "infer.gin")
    result = run_tpu("infer.gin", "-k", "lint", "--t5x-tpu-dry-run")
    result.assert_outcomes(errors=1, deselected=3)
    result.stdout.fnmatch_lines([message])


def test_a_target_that_cannot_be_told_ahead_is_its_own_tests_error(run_tpu: Run, pytester: pytest.Pytester) -> None:
    """The other test is not affected."""
    below = pytester.mkpydir("below")
    shipped = "import pytest\n\n@pytest.mark.tpu(ship=True)\ndef test_{name}():\n    pass\n"
    (below / "conftest.py").write_text(fixture("pytest.fail('nobody knows')"))
    (below / "test_below.py").write_text(shipped.format(name="below"))
    pytester.makeconftest(fixture('VertexTarget("theirs", "us-central1", "their-bucket", "their/t5x:2")'))
    pytester.makepyfile(test_above=shipped.format(name="above"))
    result = run_tpu("--t5x-tpu-dry-run")
    result.assert_outcomes(skipped=1, errors=1)
    result.stdout.fnmatch_lines(["E   *Failed: nobody knows"])


def _places(lines: list[str]) -> dict[str, tuple[str, str]]:
    """Returns the bucket and region of each job in a dry run, by the jobs' names without their stamps."""
    jobs: dict[str, tuple[str, str]] = {}
    for line in lines:
        if ": v3-8: 4 chips" in line:
            name = line.partition("-20")[0]
        elif line.startswith("where: project theirs, "):
            region = line.rpartition(" ")[2]
        elif line.startswith("  gs://"):
            jobs[name] = (line.split("/")[2], region)
    return jobs
