"""Jobs on TPUs whose programs are judged before their processes begin, by small scripts in the compiler's place."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.cloud.aiplatform_v1", reason="needs the extra vertex")

from job_service import pool, processes_of, read_entries, until

from t5x_harness.google.vertex.faults import VertexFault, no_room
from t5x_harness.google.vertex.jobs.endings import State
from t5x_harness.google.vertex.jobs.judging import Judgement, Verdict, note_line
from t5x_harness.google.vertex.settings import VertexOptions
from t5x_harness.spec import AotMode

V3_8 = {"machine_type": "cloud-tpu", "accelerator_type": "TPU_V3", "accelerator_count": 8}
BEGINS = "t5x-harness compiles the programs of workerpool0-0 for v3-8 before it begins: aot=memory"
WAITING = f"echo '{note_line('compiling')}'; sleep 1000"


def says(judgement: Judgement) -> str:
    """A script whose last line is a judgement."""
    return f"printf '%s\\n' {shlex.quote(judgement.line())}"


FITS = says(Judgement(Verdict.FITS, "train fits, peak 1 GiB"))


@pytest.fixture
def judging(make_service: Callable[..., Any]) -> Any:
    """A service that has jobs judged by the last word of their commands."""
    return make_service(aot="memory", programs="pretend_judges")


def run(service: Any, judge: str, script: str = "echo ran", machine: Any = V3_8, **spec: Any) -> Any:
    """Starts a job of one replica with a script, which does not see its last word."""
    return service.create({"worker_pool_specs": [pool("sh", "-c", script, "sh", judge, **machine)], **spec})


def test_a_job_that_exceeds_the_memory_fails_in_the_compilers_words_and_never_begins(judging: Any) -> None:
    text = no_room(20.63, 15.48, "jit_train_step")
    job = judging.ended(run(judging, says(Judgement(Verdict.EXCEEDS, f"{text}\nSee the error's page."))))
    assert (job.state, job.error.code) == (State.FAILED, 3)
    assert job.error.message.startswith("The replica workerpool0-0 exited with a non-zero status of 1.")
    assert judging.said(job) == [text, "See the error's page."]
    entries = read_entries(judging.api.services.state, job.name)
    assert {e["severity"] for e in entries if e["resource"]["labels"]["task_name"] == "workerpool0-0"} == {"ERROR"}
    assert judging.said(job, "service")[2:4] == [BEGINS, job.error.message]


def test_a_job_that_fits_runs_and_its_log_says_what_was_judged_and_what_was_not(judging: Any) -> None:
    judgement = Judgement(Verdict.FITS, "train fits, peak 1 GiB", ("not judged: the size of its code",))
    judge = f"echo '{note_line('train: waiting for another compilation')}'; echo chatter; {says(judgement)}"
    job = judging.ended(run(judging, judge))
    assert job.state == State.SUCCEEDED
    entries = read_entries(judging.api.services.state, job.name)
    said = [(entry["severity"], entry["textPayload"]) for entry in entries]
    assert said[2:] == [
        ("INFO", BEGINS),
        ("INFO", "train: waiting for another compilation"),
        ("INFO", "t5x-harness has judged the job on v3-8: train fits, peak 1 GiB"),
        ("WARNING", "not judged: the size of its code"),
        ("INFO", "ran"),
        ("INFO", "Job completed successfully."),
    ]


@pytest.mark.parametrize(
    ("judge", "why"),
    [
        ("", "nobody knows what it runs"),
        (says(Judgement(Verdict.UNKNOWN, "the TPU compiler is not installed")), "the TPU compiler is not installed"),
        (
            "echo out of ideas >&2; kill -9 $$",
            "the process that was to judge it ended with status 137; the last that it said: out of ideas",
        ),
        ('echo "{"; exit 3', "the process that was to judge it ended with status 3; the last that it said: {"),
    ],
    ids=["unjudgeable", "unknown", "killed", "broken"],
)
def test_a_job_that_nobody_can_judge_runs_and_its_log_says_why(judging: Any, judge: str, why: str) -> None:
    job = judging.ended(run(judging, judge))
    assert job.state == State.SUCCEEDED
    assert judging.said(job) == ["ran"]
    warned = [e for e in read_entries(judging.api.services.state, job.name) if e["severity"] == "WARNING"]
    assert [entry["textPayload"] for entry in warned] == [
        f"t5x-harness has not judged whether the job fits the HBM of v3-8: {why}"
    ]


def test_what_judges_has_the_folders_and_variables_of_the_job(judging: Any, tmp_path: Path) -> None:
    bucket = tmp_path / "server-0" / "root" / "buckets" / "b"
    bucket.mkdir(parents=True)
    (bucket / "run.gin").write_text("X = 1")
    judge = (
        'echo "{\\"verdict\\": \\"fits\\", \\"text\\": \\"$(cat /gcs/b/run.gin) $WORD $SLICE $MODE $PWD $TMPDIR\\"}"'
    )
    spec = pool("sh", "-c", "echo ran", "sh", judge, **V3_8)
    spec["container_spec"]["env"] = [{"name": "WORD", "value": "given"}]
    job = judging.ended(judging.create({"worker_pool_specs": [spec]}))
    [said] = [line for line in judging.said(job, "service") if "has judged" in line]
    *words, folder, temporary = said.partition("v3-8: ")[2].split()
    assert words == ["X", "=", "1", "given", "v3-8", "memory"]
    assert Path(folder).name == "work"
    assert "judge" in Path(folder).parent.name
    assert folder != temporary


def test_nothing_is_judged_where_nobody_asks_or_there_is_no_tpu(service: Any, judging: Any) -> None:
    exceeds = says(Judgement(Verdict.EXCEEDS, "no room"))
    for job in (
        service.ended(run(service, exceeds)),
        judging.ended(run(judging, exceeds, machine={"machine_type": "n1-standard-4"})),
    ):
        assert job.state == State.SUCCEEDED
    for each in (service, judging):
        assert not any("t5x-harness" in line for line in each.said(job, "service"))


def test_a_job_that_is_cancelled_while_it_is_judged_ends_what_judges(judging: Any, tmp_path: Path) -> None:
    job = run(judging, WAITING)
    until(lambda: judging.said(job, "service"), lambda lines: "compiling" in lines)
    assert processes_of(tmp_path)
    judging.cancel(job)
    assert judging.ended(job).state == State.CANCELLED
    until(lambda: processes_of(tmp_path), lambda left: not left)
    assert judging.said(job) == []


def test_a_job_whose_time_is_over_while_it_is_judged_ends_what_judges(judging: Any, tmp_path: Path) -> None:
    job = judging.ended(run(judging, WAITING, scheduling={"timeout": {"seconds": 1}}))
    assert job.state == State.CANCELLED
    until(lambda: processes_of(tmp_path), lambda left: not left)


def test_a_server_that_ends_ends_what_judges(judging: Any, tmp_path: Path) -> None:
    job = run(judging, f"setsid sleep 1000 & {WAITING}")
    until(lambda: judging.said(job, "service"), lambda lines: "compiling" in lines)
    judging.api.close()
    assert not processes_of(tmp_path)


def test_a_server_that_is_killed_takes_what_judges_along(tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from pathlib import Path\n"
        "from job_service import Service, pool\n"
        "service = Service(Path(sys.argv[1]), aot='memory', programs='pretend_judges')\n"
        f"service.create({{'worker_pool_specs': [pool('sh', '-c', 'true', 'sh', 'setsid sleep 1000', **{V3_8!r})]}})\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE) as server:
        try:
            until(lambda: processes_of(tmp_path), lambda found: len(found) >= 1)
        finally:
            server.kill()
    until(lambda: processes_of(tmp_path), lambda left: not left)


def test_a_replica_that_is_preempted_while_it_is_judged_begins_once_it_is(judging: Any, tmp_path: Path) -> None:
    judging.api.services.faults.arm(VertexFault("preempt"))
    gate = tmp_path / "gate"
    job = run(judging, f"while [ ! -e {gate} ]; do sleep 0.02; done; {FITS}")
    until(lambda: judging.said(job, "service"), lambda lines: "The replica workerpool0-0 is preempted." in lines)
    gate.touch()
    assert judging.ended(job).state == State.SUCCEEDED
    assert judging.said(job) == ["ran"]


def test_a_job_that_begins_again_is_not_judged_again(judging: Any) -> None:
    again = "if [ -e ../ran ]; then echo again; else touch ../ran; echo first; kill -ABRT $$; fi"
    job = judging.ended(run(judging, FITS, again))
    assert job.state == State.SUCCEEDED
    assert [line for line in judging.said(job) if line in ("first", "again")] == ["first", "again"]
    assert judging.said(job, "service").count(BEGINS) == 1


def test_all_hosts_of_a_slice_wait_for_one_judgement(judging: Any) -> None:
    machine = {**V3_8, "accelerator_count": 32}
    job = judging.ended(run(judging, FITS, machine=machine))
    assert job.state == State.SUCCEEDED
    lines = judging.said(job, "service")
    assert [line for line in lines if "compiles the programs" in line] == [
        "t5x-harness compiles the programs of workerpool0-0.0 for v3-32 before it begins: aot=memory"
    ]
    assert judging.said(job).count("ran") == 4
    job = judging.ended(run(judging, says(Judgement(Verdict.EXCEEDS, "no room")), machine=machine))
    assert job.error.message.startswith("The replica workerpool0-0 exited with a non-zero status of 1.")
    assert judging.said(job) == ["no room"] * 4


def test_of_two_jobs_at_once_one_waits_for_the_compiler_and_both_run(judging: Any, tmp_path: Path) -> None:
    lock, gate = tmp_path / "lock", tmp_path / "gate"
    waits, compiles = note_line("waiting for another compilation"), note_line("compiling")
    wait = f"while [ ! -e {gate} ]; do sleep 0.02; done"
    judge = f"exec 9>{lock}; flock -n 9 || {{ echo '{waits}'; flock 9; }}; echo '{compiles}'; {wait}; {FITS}"
    jobs = [run(judging, judge), run(judging, judge)]

    def notes(text: str) -> int:
        return sum(judging.said(job, "service").count(text) for job in jobs)

    until(lambda: notes("waiting for another compilation") + notes("compiling"), lambda count: count == 2)
    assert notes("compiling") == 1
    gate.touch()
    assert [judging.ended(job).state for job in jobs] == [State.SUCCEEDED] * 2


def test_what_cannot_judge_is_refused_and_the_choice_reaches_the_server() -> None:
    with pytest.raises(ValueError, match="aot='lower' judges no job; there are depths, memory, full"):
        VertexOptions(aot="lower")  # type: ignore[arg-type]
    options = VertexOptions(aot="memory")  # type: ignore[arg-type]
    assert options.aot is AotMode.MEMORY
    assert VertexOptions.from_dict(json.loads(json.dumps(options.to_dict()))) == options
