"""Complete shipped tests: packed, sent with Google's SDK, run in a job, and reported here like local ones."""

import contextlib
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import pytest

from t5x_harness.google.gcs import FakeGcs
from t5x_harness.google.vertex_admin import FakeVertex

Run = Callable[..., pytest.RunResult]

HEAD = """
import os
import time

import pytest

pytestmark = pytest.mark.tpu(accelerator_type="TPU_V3", accelerator_count=8, ship=True)
"""


@pytest.fixture
def run(vertex: FakeVertex, pytester: pytest.Pytester, promote: Run) -> Run:
    """Runs pytest, which uses the Vertex AI of the test."""
    pytester.makeconftest("import pytest\n\n@pytest.fixture\ndef greeting():\n    return 'hi'\n")
    return lambda source, *arguments: promote(HEAD + source, *arguments)


OUTCOMES = """
HERE = {here}

def test_passes(greeting, record_property):
    record_property("speed", 3)
    assert greeting == "hi" and os.getpid() != HERE and "CLOUD_ML_JOB_ID" in os.environ

def test_fails(greeting):
    print("said in the job")
    assert greeting == "ho"

@pytest.mark.skipif("CLOUD_ML_JOB_ID" in os.environ, reason="not there")
def test_skips():
    pass

@pytest.mark.xfail(reason="known")
def test_xfails():
    assert False
"""


@pytest.mark.journey
@pytest.mark.parametrize("distributed", [[], ["-n", "2"]], ids=["alone", "distributed"])
def test_the_outcome_there_is_the_outcome_here(
    run: Run, vertex: FakeVertex, pytester: pytest.Pytester, distributed: list[str]
) -> None:
    result = run(OUTCOMES.format(here=os.getpid()), "--junitxml=there.xml", "-ra", *distributed)
    result.assert_outcomes(passed=1, failed=1, skipped=1, xfailed=1)
    result.stdout.fnmatch_lines(
        [
            '>       assert greeting == "ho"',
            "E       AssertionError: assert 'hi' == 'ho'*",
            "test_there.py:*: AssertionError",
            "*- Captured stdout call -*",
            "said in the job",
            "*- Vertex AI job -*",
            "test-fails-*: succeeded",
            "projects/*/customJobs/* of the emulated Vertex AI, which has no console",
            "SKIPPED [[]1[]] test_there.py:*: not there",
            "XFAIL test_there.py::test_xfails - known",
        ]
    )
    cases = {case.get("name"): case for case in ElementTree.parse(pytester.path / "there.xml").iter("testcase")}
    properties = {p.get("name"): p.get("value") for p in cases["test_passes"].iter("property")}
    assert properties["speed"] == "3"
    assert properties["t5x.job"] in {job.name for job in vertex.jobs()}
    assert "t5x.job_url" not in properties, "the emulated one has no console"
    assert len(vertex.jobs()) == 4


SUBTESTS = """
def test_parts(subtests):
    with subtests.test("one"):
        pass
    with subtests.test("two"):
        assert 1 == 2
"""


@pytest.mark.journey
def test_a_subtest_that_fails_there_fails_here(run: Run) -> None:
    pytest.importorskip("pytest", minversion="9")
    result = run(SUBTESTS, "-rf")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "E *assert 1 == 2",
            "contains 1 failed subtest",
            "SUBFAILED[[]two[]] test_there.py::test_parts - assert 1 == 2",
            "FAILED test_there.py::test_parts - contains 1 failed subtest",
        ]
    )
    result = run(SUBTESTS, "-p", "no:subtests", "-rf")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["test_parts: a subtest failed in the job, and pytest here knows no subtests: take *"])


NAMES = """
@pytest.mark.parametrize("name", ["a/b c$X", "$(HOME)", "x::y]", "-k", ""])
def test_name(name):
    pass
"""


@pytest.mark.journey
def test_a_test_is_found_there_whatever_its_parameters_are_called(run: Run) -> None:
    run(NAMES).assert_outcomes(passed=5)


ENDINGS = """
def test_preempted():
    time.sleep(60)

def test_stockout():
    pass

@pytest.mark.tpu(timeout=3)
def test_slow():
    time.sleep(60)

def test_dies():
    os._exit(3)
"""


@pytest.mark.journey
def test_every_other_end_of_a_job_is_told_with_its_fix(run: Run, vertex: FakeVertex) -> None:
    vertex.preempt("test-preempted-*", times=None)
    vertex.stockout("test-stockout-*")
    result = run(ENDINGS)
    result.assert_outcomes(failed=4)
    result.stdout.fnmatch_lines(
        [
            "test_preempted: the job test-preempted-* ended as failed: * was preempted, *",
            "    fix: run it again: its machine was taken away, which is not the test's fault",
            "test_stockout: the job test-stockout-* ended as failed: Resources are insufficient in region: us-*",
            "    fix: run it in another region, on another slice, or later: no machine is free",
            "test_slow: the job test-slow-* ended as cancelled: The job ran for longer than its scheduling.timeout *",
            "    fix: raise timeout= of the marker, or have the test do less",
            "test_dies: the job test-dies-* ended as failed: The replica workerpool0-0 exited with *",
            "    fix: see the end of its log, or all of it at projects/*/customJobs/*",
            "the end of the job's log:",
        ]
    )


def test_a_job_that_cannot_be_sent_says_why(run: Run, vertex: FakeVertex) -> None:
    vertex.fail("JobService.CreateCustomJob", "PERMISSION_DENIED", message="not you", times=1)
    result = run(
        """
def test_refused():
    pass

@pytest.mark.tpu(files=["data/*.tsv"])
def test_lacks():
    pass

@pytest.mark.tpu(accelerator_count=512, timeout="2h")
def test_dear():
    pass

@pytest.mark.tpu(accelerator_count=7)
def test_odd():
    pass
"""
    )
    result.assert_outcomes(failed=4)
    result.stdout.fnmatch_lines(
        [
            "test_refused was not sent as a job: the job test-refused-* cannot be created: 403, *not you*",
            "test_lacks was not sent as a job: files: 'data/[*].tsv' matches no file below *",
            "test_dear was not sent as a job: v3-512: 256 chips x at most 2 h = 512 chip-hours: more than the 16 *",
            "test_odd was not sent as a job: Vertex AI would refuse this job:",
            "  job_spec.worker_pool_specs[[]0[]].machine_spec.accelerator_count: *",
        ]
    )
    assert vertex.jobs() == []


@pytest.mark.journey
def test_a_job_that_was_sent_before_is_taken_for_its_test_only(run: Run, vertex: FakeVertex) -> None:
    run("def test_it():\n    pass\n").assert_outcomes(passed=1)
    [job] = vertex.jobs()
    run("def test_it():\n    pass\n", f"--t5x-tpu-reuse={job.name}").assert_outcomes(passed=1)
    other = run("def test_it():\n    assert True\n", "--t5x-tpu-reuse", job.name.rpartition("/")[2])
    other.assert_outcomes(failed=1)
    other.stdout.fnmatch_lines(["test_it was not sent as a job: --t5x-tpu-reuse: no given job does what this *"])
    none = run("def test_it():\n    pass\n", "--t5x-tpu-reuse=12345")
    none.assert_outcomes(failed=1)
    none.stdout.fnmatch_lines(["test_it was not sent as a job: the job 12345 cannot be read: *"])
    assert vertex.jobs() == [job]


def test_buckets_of_a_real_project_are_not_made(run: Run, vertex: FakeVertex, fake_gcs: FakeGcs) -> None:
    """The service is real only in name: the clients use the same emulated Google Cloud."""
    target = [
        "--t5x-vertex=real",
        "--t5x-vertex-project=mine",
        "--t5x-vertex-location=us-central1",
        "--t5x-vertex-bucket=no-such-bucket",
    ]
    result = run("def test_it():\n    pass\n", *target, "--t5x-vertex-image=repo/t5x:1")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "t5x-harness: -m 'tpu' promotes * to jobs on an emulated Vertex AI on this machine (project mine, us-*:1)",
            "test_it was not sent as a job: gs://no-such-bucket/t5x-harness/shipped/*/test.tar.gz: 404, *",
        ]
    )
    assert fake_gcs.buckets() == []
    assert vertex.jobs() == []


@pytest.mark.parametrize(
    "distributed", [[], pytest.param(["-n", "1"], marks=pytest.mark.journey)], ids=["alone", "distributed"]
)
def test_a_dry_run_prints_the_job_and_sends_nothing(run: Run, vertex: FakeVertex, distributed: list[str]) -> None:
    result = run("def test_it():\n    pass\n", "--t5x-tpu-dry-run", "-rs", *distributed)
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(
        [
            "*= TPU job, not sent =*",
            "test-it-*: v3-8: 4 chips x at most 15 min = 1 chip-hours",
            "staged:",
            "  gs://t5x-harness-jobs/t5x-harness/shipped/*/test.tar.gz",
            "arguments:",
            "  --archive=/gcs/t5x-harness-jobs/t5x-harness/shipped/*/test.tar.gz",
            "  test_there.py::test_it",
            "      accelerator_type: TPU_V3",
            "SKIPPED [[]1[]] test_there.py:*: --t5x-tpu-dry-run: the job was printed and not sent",
        ]
    )
    assert vertex.jobs() == []


LONG = HEAD + "def test_one():\n    time.sleep(300)\n\ndef test_two():\n    time.sleep(300)\n"


@pytest.mark.journey
def test_ctrl_c_cancels_the_jobs_that_are_there(vertex: FakeVertex, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_long=LONG)
    output = _interrupted(vertex, pytester, 2)
    assert {vertex.wait(job.name).state for job in vertex.jobs()} == {"JOB_STATE_CANCELLED"}
    assert output.count("cancelled the job projects/") == 2
    assert "INTERNALERROR" not in output


DROPS = """
import os
import signal
from pathlib import Path

class Interrupting:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

if "CLOUD_ML_JOB_ID" not in os.environ:
    def pytest_runtest_call(item):
        Interrupting()

    def pytest_runtest_teardown(item):
        Path("went-on").touch()
"""


@pytest.mark.journey
@pytest.mark.usefixtures("imported")
def test_ctrl_c_that_is_dropped_ends_the_session_with_the_phase(vertex: FakeVertex, pytester: pytest.Pytester) -> None:
    pytester.makeconftest(DROPS)
    pytester.makepyfile(test_long=HEAD + "def test_one():\n    pass\n\ndef test_two():\n    time.sleep(300)\n")
    output = _ended(_started(pytester))
    assert sorted(vertex.wait(job.name).state for job in vertex.jobs()) == [
        "JOB_STATE_CANCELLED",
        "JOB_STATE_SUCCEEDED",
    ]
    assert output.count("cancelled the job projects/") == 1
    assert "! KeyboardInterrupt !" in output
    assert not (pytester.path / "went-on").exists()


@pytest.mark.journey
@pytest.mark.usefixtures("imported")
def test_ctrl_c_says_which_jobs_it_could_not_cancel(vertex: FakeVertex, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_long=HEAD + "def test_one():\n    time.sleep(300)\n")
    vertex.fail("JobService.CancelCustomJob", "PERMISSION_DENIED", message="not you", times=1)
    output = _interrupted(vertex, pytester, 1)
    assert "cannot be cancelled: 403" in output
    assert "It goes on and is paid for: gcloud ai custom-jobs cancel " in output


TWICE = """
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish():
    raise KeyboardInterrupt
"""


@pytest.mark.journey
@pytest.mark.usefixtures("imported")
def test_ctrl_c_while_pytest_ends_leaves_no_job(vertex: FakeVertex, pytester: pytest.Pytester) -> None:
    pytester.makeconftest(TWICE)
    pytester.makepyfile(test_long=LONG)
    output = _interrupted(vertex, pytester, 2)
    assert {vertex.wait(job.name).state for job in vertex.jobs()} == {"JOB_STATE_CANCELLED"}
    assert output.count("cancelled the job projects/") == 2


# The handler writes to the original standard error, because pytest captures that of the tests.
TELLS_STACKS = """
import faulthandler, os, signal, sys, pytest
faulthandler.register(signal.SIGUSR1, os.dup(2))
sys.exit(pytest.main(sys.argv[1:]))
"""


def _interrupted(vertex: FakeVertex, pytester: pytest.Pytester, number: int) -> str:
    """Returns the output of a pytest that gets Ctrl-C once a number of jobs are running."""
    process = _started(pytester)
    while len(vertex.jobs()) < number:
        assert process.poll() is None, process.communicate()[0]
    for job in vertex.jobs():
        vertex.wait(job.name, {"JOB_STATE_RUNNING"})
    process.send_signal(signal.SIGINT)
    return _ended(process)


def _started(pytester: pytest.Pytester) -> subprocess.Popen[str]:
    """Starts pytest with the long tests; on SIGUSR1, it prints its stacks."""
    command = [sys.executable, "-c", TELLS_STACKS, "-m", "tpu", "--t5x-vertex=emulated", "test_long.py"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=pytester.path)


def _ended(process: subprocess.Popen[str]) -> str:
    """Returns the output of a process that should end; otherwise kills it, and fails with its output and stacks."""
    try:
        return process.communicate(timeout=120)[0]
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGUSR1)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=5)  # gives the handler time to write
        process.kill()
        pytest.fail(f"pytest did not end. What it said, and where it was:\n{process.communicate()[0]}")
    finally:
        process.kill()


def test_a_promoted_test_with_nothing_to_send_is_no_green(run: Run) -> None:
    result = run("@pytest.mark.tpu(ship=False)\ndef test_here():\n    pass\n")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["test_here is promoted to a TPU and has nothing to send there: give a config to t5x_run in it, or have the *"]
    )
