"""A conftest's own fixture ``vertex_target``: it says where jobs go of everything below its folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from t5x_harness.google.gcs import FakeGcs
from t5x_harness.google.vertex_admin import FakeVertex
from t5x_harness.sample_tasks import CONFIGS

Run = Callable[..., pytest.RunResult]

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
def run(pytester: pytest.Pytester, imported: None, monkeypatch: pytest.MonkeyPatch, run_pytest: Run) -> Run:
    """Runs pytest where no option, variable or file names a target; no traceback of ours may be shown."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    for name in ("", "_PROJECT", "_LOCATION", "_BUCKET", "_IMAGE"):
        monkeypatch.delenv(f"T5X_HARNESS_VERTEX{name}", raising=False)
    shutil.copytree(CONFIGS / "models", pytester.path / "models")
    pytester.makepyprojecttoml('[tool.t5x_harness.tpu]\naccelerator_type = "TPU_V3"\naccelerator_count = 8\n')

    def call(*arguments: str) -> pytest.RunResult:
        result = run_pytest("-m", "tpu", "--t5x-runtime=embedded", *arguments)
        for text in (result.stdout, result.stderr):
            text.no_fnmatch_line("*INTERNALERROR*")
        return result

    return call


def fixture(value: str, scope: str = "session", arguments: str = "") -> str:
    """The source of a conftest with the fixture."""
    return FIXTURE.format(value=value, scope=scope, arguments=arguments)


@pytest.mark.journey
def test_every_kind_of_item_goes_where_the_closest_fixture_says(run: Run, pytester: pytest.Pytester) -> None:
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
    result = run("--t5x-tpu-dry-run", "infer.gin", "below/lower.gin", "test_kinds.py", "below/test_lower.py")
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
    run: Run, vertex: FakeVertex, fake_gcs: FakeGcs, pytester: pytest.Pytester
) -> None:
    """Each waits for the other."""
    pytester.makeconftest(fixture('VertexTarget("theirs", "us-central1", "their-bucket", "their/t5x:2")'))
    pytester.makepyfile(test_meet=MEET)
    run("--t5x-vertex=emulated").assert_outcomes(passed=2)
    assert fake_gcs.buckets() == ["their-bucket"]
    assert vertex.jobs() == []  # of the project that is used where nobody says


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
    run: Run, pytester: pytest.Pytester, source: str, message: str
) -> None:
    pytester.makeconftest(source)
    shutil.copy(CONFIGS / "infer_answer.gin", pytester.path / "infer.gin")
    result = run("infer.gin", "-k", "lint", "--t5x-tpu-dry-run")
    result.assert_outcomes(errors=1, deselected=3)
    result.stdout.fnmatch_lines([message])


def test_a_target_that_cannot_be_told_ahead_is_its_own_tests_error(run: Run, pytester: pytest.Pytester) -> None:
    """The other test is not touched by it."""
    below = pytester.mkpydir("below")
    shipped = "import pytest\n\n@pytest.mark.tpu(ship=True)\ndef test_{name}():\n    pass\n"
    (below / "conftest.py").write_text(fixture("pytest.fail('nobody knows')"))
    (below / "test_below.py").write_text(shipped.format(name="below"))
    pytester.makeconftest(fixture('VertexTarget("theirs", "us-central1", "their-bucket", "their/t5x:2")'))
    pytester.makepyfile(test_above=shipped.format(name="above"))
    result = run("--t5x-tpu-dry-run")
    result.assert_outcomes(skipped=1, errors=1)
    result.stdout.fnmatch_lines(["E   *Failed: nobody knows"])


def _places(lines: list[str]) -> dict[str, tuple[str, str]]:
    """Bucket and region of each job of a dry run, by the names of jobs without their stamps."""
    jobs: dict[str, tuple[str, str]] = {}
    for line in lines:
        if ": v3-8: 4 chips" in line:
            name = line.partition("-20")[0]
        elif line.startswith("where: project theirs, "):
            region = line.rpartition(" ")[2]
        elif line.startswith("  gs://"):
            jobs[name] = (line.split("/")[2], region)
    return jobs
