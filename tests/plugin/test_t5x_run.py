"""``t5x_run``: the sources of its settings, failed runs as a test sees them, and tasks from ``tiny_task``."""

from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., pytest.RunResult]

BROKEN = "infer.mode = 'generate'"  # lint finds it, so no test here waits for a process


def test_settings_come_from_fixtures_the_marker_and_the_call(run: Run, folder: Path) -> None:
    """The last of these wins: configuration, fixture, marker, call."""
    (folder / "pyproject.toml").write_text(
        '[tool.t5x_harness]\nslice = "v3-32"\nbindings = ["BATCH_SIZE = 1"]\nsearch_paths = ["first"]\n'
    )
    (folder / "conftest.py").write_text(
        f"""
import pytest

@pytest.fixture
def t5x_bindings(request):
    return ["BATCH_SIZE = 2", {BROKEN!r}]

@pytest.fixture
def t5x_search_paths():
    return ["second"]
"""
    )
    (folder / "test_settings.py").write_text(
        """
import pytest

def settings(result):
    spec = result.spec
    return spec.slice, spec.bindings[:1], spec.bindings[-1], [path.rpartition("/")[2] for path in spec.search_paths]

def test_configuration(t5x_run):
    slice, first, last, paths = settings(t5x_run("infer.gin", check=False))
    assert (slice, first, paths) == ("v3-32", ("BATCH_SIZE = 1",), ["second", "first"])
    assert last.endswith("'generate'")

def test_call(t5x_run):
    result = t5x_run("infer.gin", slice="v2-8", bindings=["BATCH_SIZE = 3"], search_paths=["third"], check=False)
    assert settings(result)[0] == "v2-8"
    assert not result.spec.settings.full_mesh
    assert t5x_run("infer.gin", full_mesh=True, check=False).spec.settings.full_mesh
    assert not result.spec.settings.tpu_numerics
    assert t5x_run("infer.gin", tpu_numerics=True, check=False).spec.settings.tpu_numerics
    assert settings(result)[2:] == ("BATCH_SIZE = 3", ["third", "second", "first"])

@pytest.mark.slice("v4-8")
def test_marker(t5x_run):
    assert settings(t5x_run("infer.gin", check=False))[0] == "v4-8"
    assert settings(t5x_run("infer.gin", slice="v4-16", check=False))[0] == "v4-16"

class TestOverridden:
    @pytest.fixture
    def t5x_slice(self):
        return "v3-64"

    def test_fixture(self, t5x_run):
        assert settings(t5x_run("infer.gin", check=False))[0] == "v3-64"

    @pytest.mark.slice(name="v4-8")
    def test_marker(self, t5x_run):
        assert settings(t5x_run("infer.gin", check=False))[0] == "v4-8"
"""
    )
    result = run("test_settings.py")
    result.assert_outcomes(passed=5)
    result.stdout.no_fnmatch_line("*= t5x-harness =*")  # failures that a test expects are not the session's


def test_a_level_of_instructions_that_there_is_not_fails_the_test(run: Run, folder: Path) -> None:
    (folder / "test_level.py").write_text("def test_it(t5x_run):\n    t5x_run('infer.gin', cpu_isa='amx')\n")
    result = run("test_level.py")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["t5x_run: cpu_isa='amx': there is no such level: sse4.2, avx2, avx512"])
    result.stdout.no_fnmatch_line("*runs.py*")


def test_a_failing_run_shows_its_findings_and_no_frame_of_ours(run: Run, folder: Path) -> None:
    (folder / "test_failing.py").write_text(
        f"def test_it(t5x_run):\n    t5x_run('infer.gin', bindings=[{BROKEN!r}])\n    assert False, 'not reached'\n"
    )
    result = run("test_failing.py")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*_ test_it _*",
            "INF04: lint of infer failed",
            "--gin bindings:1: error INF04: infer.mode cannot be 'generate': T5X knows no other mode and dies",
            "    fix: give 'predict', 'score' or 'predict_with_aux'",
            "not run after it: resolve, plan, infer",
            "run *",
            "infer *FAILED*",
        ]
    )
    result.stdout.no_fnmatch_line("*runs.py*")
    result.stdout.no_fnmatch_line("*not reached*")


@pytest.mark.journey
def test_a_failure_stays_in_the_table_though_the_same_run_passes_later(run: Run, folder: Path) -> None:
    (folder / "test_twice.py").write_text(
        f"""
from pathlib import Path

def test_broken(t5x_run):
    Path("part.gin").write_text({BROKEN!r})
    t5x_run(["infer.gin", "part.gin"])

def test_fixed(t5x_run):
    Path("part.gin").write_text("")
    t5x_run(["infer.gin", "part.gin"])
"""
    )
    result = run("test_twice.py")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["part  infer  v3-8   FAILED  *"])


SMOKE = """
import pytest

pytestmark = pytest.mark.smoke

def test_whole_run(t5x_run):
    t5x_run("infer.gin", bindings=["infer.mode = 'generate'"], check=False)

def test_expected(t5x_run):
    with pytest.raises(pytest.fail.Exception):
        t5x_run("infer.gin", bindings=["infer.mode = 'generate'"])

def test_stage_that_is_named(t5x_run):
    result = t5x_run("infer.gin", bindings=["infer.mode = 'generate'"], until="lint", check=False)
    assert [stage.stage for stage in result.stages] == ["lint"]
    assert result.stage("lint").errors

def test_stage_that_was_not_reached(t5x_run):
    t5x_run("infer.gin", bindings=["infer.mode = 'generate'"], until="plan", check=False)
"""


def test_reading_is_no_exercise_for_a_test_that_claims_a_run(run: Run, folder: Path) -> None:
    """The test passes only if it asks for that stage by name, and the run got that far."""
    (folder / "test_read.py").write_text(SMOKE)
    result = run("test_read.py", "-v")
    result.assert_outcomes(passed=1, failed=3)
    result.stdout.fnmatch_lines(["test_read.py::test_stage_that_is_named PASSED*"])
    result.stdout.fnmatch_lines(["test_expected is marked smoke but exercised nothing: *with until= if it means an *"])


@pytest.mark.journey
def test_a_run_of_some_gin_files_and_a_tiny_task(run: Run, folder: Path) -> None:
    """Several files make one run, and the task's module is found wherever pytest was started."""
    (folder / "test_tiny.py").write_text(
        """
ROWS = [{"inputs": f"say {word}", "targets": word} for word in ("one", "two", "three", "four")]

def test_it(t5x_run, tiny_task):
    result = t5x_run(
        ["models/tiny_pieces.gin", "t5x/configs/runs/infer.gin"],
        mode="infer",
        task=tiny_task(ROWS, vocabulary="sentencepiece"),
        bindings=[
            "DROPOUT_RATE = 0.0",
            "CHECKPOINT_PATH = 'gs://bucket/checkpoint_8'",
            "utils.DatasetConfig.split = 'test'",
        ],
        slice="v3:1x1",
    )
    assert result.spec.name == "infer"
    assert dict(result.stage("plan").facts)["mesh"] == "data 2 x model 1"
    assert [line["inputs"]["targets_pretokenized"] for line in result.predictions] == ["one", "two", "three", "four"]
"""
    )
    run("test_tiny.py").assert_outcomes(passed=1)


ROWS = [{"inputs": "copy a", "targets": "a"}, {"inputs": "copy bb", "targets": "bb"}]


def test_lengths_cover_the_longest_text_and_its_end(tiny_task) -> None:
    task = tiny_task(ROWS)
    assert dict(task.task_feature_lengths) == {"inputs": len("copy bb") + 1, "targets": len("bb") + 1}
    assert Path(task.folder, f"{task.name}.py").is_file()
    assert f"MIXTURE_OR_TASK_NAME = {task.name!r}" in task.bindings


def test_equal_rows_make_the_same_task_and_others_another(tiny_task) -> None:
    assert tiny_task(ROWS).name == tiny_task(ROWS).name
    assert tiny_task(ROWS).name != tiny_task(ROWS[:1]).name


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([], {}, "tiny_task needs at least one row"),
        ([{"inputs": "a"}], {}, "row 0 of tiny_task lacks targets; it has inputs"),
        (ROWS, {"vocabulary": "words"}, "vocabulary 'words' of tiny_task is not one of byte, sentencepiece"),
        (ROWS, {"metrics": ["rouge"]}, "metric 'rouge' of tiny_task is not one of accuracy, bleu"),
    ],
)
def test_mistakes_are_named(tiny_task, rows, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        tiny_task(rows, **options)
