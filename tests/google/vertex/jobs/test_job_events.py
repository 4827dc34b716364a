"""The states of a custom job for any events in any order, and what injected faults do to jobs that run."""

import json
import re
from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from job_service import PARENT, pool, tuning_job

from t5x_harness.google.vertex.faults import VertexFault, no_room
from t5x_harness.google.vertex.jobs import machine
from t5x_harness.google.vertex.jobs.endings import JobState, unable
from t5x_harness.google.vertex.jobs.machine import JobEvent, Policy, Progress, StartUnits, StopUnits, advance
from t5x_harness.google.vertex.settings import VertexOptions

CHIEF, WORKER, OTHER = "workerpool0-0", "workerpool1-0", "workerpool1-1"
UNITS = frozenset({CHIEF, WORKER, OTHER})
POLICY = Policy(UNITS, frozenset({CHIEF}))
# The states that can follow each state. The API documents the ones after CANCELLING.
NEXT = {
    JobState.QUEUED: {JobState.PENDING, JobState.CANCELLED, JobState.FAILED, JobState.EXPIRED},
    JobState.PENDING: {JobState.RUNNING, JobState.CANCELLED, JobState.FAILED, JobState.EXPIRED},
    JobState.RUNNING: {JobState.PENDING, JobState.CANCELLING, JobState.SUCCEEDED, JobState.FAILED, JobState.EXPIRED},
    JobState.CANCELLING: {JobState.CANCELLED, JobState.SUCCEEDED, JobState.FAILED, JobState.EXPIRED},
}


class Jobs(RuleBasedStateMachine):
    """All events, in any order. Commands are carried out as the driver does it."""

    @initialize(whole=st.booleans(), retries=st.booleans())
    def submit(self, whole: bool, retries: bool) -> None:
        self.policy = Policy(UNITS, frozenset({CHIEF}), whole, retries)
        self.progress = Progress()
        self.running: set[str] = set()
        self.stopped: set[str] = set()
        self.starts = 0
        self.was_asked = False

    def happens(self, event: machine.Event) -> None:
        before = self.progress
        self.progress, commands = advance(before, event, self.policy)
        if before.state is not self.progress.state:
            assert self.progress.state in NEXT[before.state]
        for command in commands:
            if isinstance(command, StartUnits):
                assert not command.units & self.running, "nothing is started twice"
                self.running |= command.units
                self.stopped -= command.units
                self.starts += 1
            else:
                assert command.units <= self.running, "nothing is stopped that does not run"
                self.stopped |= command.units

    @rule(event=st.sampled_from([*JobEvent, machine.CannotRun(unable("no image"))]))
    def anything(self, event: machine.Event) -> None:
        if event is JobEvent.CANCEL_ASKED:
            self.was_asked = self.was_asked or not self.progress.state.is_final
        elif event is JobEvent.RUN_TOO_LONG:
            self.was_asked = self.was_asked or self.progress.state is JobState.RUNNING
        self.happens(event)

    @rule()
    def begin(self) -> None:
        self.happens(JobEvent.ADMITTED)
        self.happens(JobEvent.PROVISIONED)

    @rule(unit=st.sampled_from(sorted(UNITS)))
    def preempt(self, unit: str) -> None:
        self.happens(machine.Lost(unit))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), status=st.sampled_from([0, 0, 1, 134, 137, 143]))
    def exit(self, data: st.DataObject, status: int) -> None:
        unit = data.draw(st.sampled_from(sorted(self.running)))
        self.running.discard(unit)
        self.happens(machine.Exited(unit, status))

    @invariant()
    def live_are_those_that_run(self) -> None:
        assert self.progress.live == self.running

    @invariant()
    def final_jobs_run_nothing(self) -> None:
        if self.progress.state.is_final:
            assert not self.running
            assert (self.progress.error is None) == (self.progress.state in (JobState.SUCCEEDED, JobState.EXPIRED))

    @invariant()
    def only_running_jobs_have_processes(self) -> None:
        if self.running:
            assert self.progress.state in (JobState.RUNNING, JobState.CANCELLING)

    @invariant()
    def what_is_to_end_was_told(self) -> None:
        if self.progress.decided is not None:
            assert self.running <= self.stopped

    @invariant()
    def attempts_are_limited(self) -> None:
        assert self.progress.attempt <= max(machine.INTERNAL_ATTEMPTS, machine.JOB_RESTARTS + 1)
        assert all(count <= machine.WORKER_RESTARTS for count in self.progress.restarts.values())
        if not self.policy.retries:
            assert self.starts <= 1

    @invariant()
    def cancelled_only_if_asked(self) -> None:
        if self.progress.state in (JobState.CANCELLING, JobState.CANCELLED):
            assert self.was_asked

    def teardown(self) -> None:
        """Checks that every job has ended once all of its processes have ended after a cancellation."""
        self.anything(JobEvent.CANCEL_ASKED)
        while self.running:
            self.happens(machine.Exited(self.running.pop(), 143))
        assert self.progress.state.is_final


TestJobs = Jobs.TestCase
TestJobs.settings = hypothesis_settings(max_examples=75, stateful_step_count=40, deadline=None)


BEGIN = (JobEvent.ADMITTED, JobEvent.PROVISIONED)
DONE, REST = machine.Exited(CHIEF, 0), [machine.Exited(unit, 143) for unit in (WORKER, OTHER)]
CRASHES = [each for status in (139, 134) * 2 for each in (JobEvent.PROVISIONED, machine.Exited(CHIEF, status))]
LOST = [machine.Lost(WORKER), machine.Exited(WORKER, 143)] * 5
RESTART = [machine.Lost(WORKER), *(machine.Exited(unit, 143) for unit in sorted(UNITS))]
WHOLE = Policy(UNITS, frozenset({CHIEF}), restarts_as_whole=True)
HOST, HOSTS = "workerpool0-0.0", frozenset({"workerpool0-0.0", "workerpool0-0.1"})
ONE, SLICE = Policy(frozenset({CHIEF}), frozenset({CHIEF})), Policy(HOSTS, HOSTS, restarts_as_whole=True)
LIVES = {
    "a job ends with its primary replica": ([*BEGIN, DONE, *REST], POLICY, JobState.SUCCEEDED, 1, ()),
    "a worker may end before": ([*BEGIN, machine.Exited(WORKER, 0)], POLICY, JobState.RUNNING, 1, {CHIEF, OTHER}),
    "a slice ends with all hosts": ([*BEGIN, machine.Exited(HOST, 0)], SLICE, JobState.RUNNING, 1, HOSTS - {HOST}),
    "three crashes may pass, and a fourth not": ([BEGIN[0], *CRASHES], ONE, JobState.FAILED, 4, ()),
    "a worker may be lost five times": ([*BEGIN, *LOST], POLICY, JobState.RUNNING, 1, UNITS),
    "the sixth time it takes the job along": ([*BEGIN, *LOST, *RESTART], POLICY, JobState.PENDING, 2, ()),
    "or at once, if the job asks for it": ([*BEGIN, *RESTART], WHOLE, JobState.PENDING, 2, ()),
    "a success is not canceled": ([*BEGIN, DONE, JobEvent.CANCEL_ASKED, *REST], POLICY, JobState.SUCCEEDED, 1, ()),
}


@pytest.mark.parametrize(("events", "policy", "state", "attempt", "live"), LIVES.values(), ids=LIVES)
def test_what_follows_from_events(
    events: list[machine.Event], policy: Policy, state: JobState, attempt: int, live: Collection[str]
) -> None:
    progress = Progress()
    for event in events:
        progress, commands = advance(progress, event, policy)
        if event is DONE:
            assert commands == (StopUnits(frozenset({WORKER, OTHER}), warned=False),)
    assert (progress.state, progress.attempt, progress.live) == (state, attempt, set(live))


def test_a_preempted_process_is_warned(service: Any) -> None:
    service.api.services.faults.arm(VertexFault("preempt", output="ready"))
    script = (
        "[ -e ../ran ] && exit 0; touch ../ran; trap 'echo saved; exit 1' TERM; echo ready; while :; do sleep 0.1; done"
    )
    job = service.ended(service.shell(script))
    assert job.state == JobState.SUCCEEDED
    assert "saved" in service.said(job)


# Prints what it finds in the container's own folders, puts files there, and ends by itself the second time.
FINDS = (
    'for folder in . "$HOME" "$TMPDIR"; do '
    'find "$folder" -mindepth 1 -maxdepth 1 -not -name .python -not -name .local; '
    'mkdir -p "$folder/kept/.below"; touch "$folder/kept/.below/state"; chmod 500 "$folder/kept"; done; '
    "echo started; [ -e ../ran ] && exit 0; touch ../ran; "
)


@pytest.mark.parametrize(
    ("kind", "scheduling", "attempts"),
    [
        pytest.param("preempt", {}, 1, id="replica"),
        pytest.param("preempt", {"restart_job_on_worker_restart": True}, 2, id="job"),
        pytest.param("internal", {}, 2, id="internal error"),
        pytest.param(None, {}, 2, id="abort"),
    ],
)
def test_what_runs_again_finds_nothing_of_what_it_had_left_in_its_own_folders(
    service: Any, kind: str | None, scheduling: dict[str, Any], attempts: int
) -> None:
    if kind:
        service.api.services.faults.arm(VertexFault(kind, output="ready"))
    ending = "echo ready; sleep 100" if kind else "kill -ABRT $$"
    job = service.ended(service.shell(FINDS + ending, scheduling=scheduling))
    assert job.state == JobState.SUCCEEDED
    assert [line for line in service.said(job) if line != "ready"] == ["started", "started"]
    said = service.said(job, "service")
    assert said.count("Waiting for job to be provisioned.") == attempts
    assert ("The replica workerpool0-0 is preempted." in said) == (kind == "preempt")


FLEX_START = {"strategy": "FLEX_START", "max_wait_duration": {"nanos": 200_000_000}}
NO_ROOM = (
    "Resources are insufficient in region: us-central1. Please try a different region or use a different accelerator."
)
LOW = "Replicas low on memory: workerpool0. Specify a machine with larger memory and try again."
PREEMPTED = "The replica workerpool0-0 was preempted, and the job is not restarted any more."
WAITED = "The job waited for resources for longer than its scheduling.max_wait_duration."
TOO_LONG = "The job ran for longer than its scheduling.timeout and was cancelled."
INTERNAL = "Internal error occurred for the current attempt."
FAILED = JobState.FAILED


@pytest.mark.parametrize(
    ("fault", "scheduling", "state", "error", "attempts"),
    [
        pytest.param(VertexFault("preempt"), {"disable_retries": True}, FAILED, (14, PREEMPTED), 1, id="no retries"),
        pytest.param(VertexFault("preempt", times=None), {}, FAILED, (14, PREEMPTED), 4, id="always preempted"),
        pytest.param(VertexFault("internal", times=3), {}, FAILED, (13, INTERNAL), 3, id="three internal errors"),
        pytest.param(VertexFault("expire", output="ready"), {}, JobState.EXPIRED, (0, ""), 1, id="expired"),
        pytest.param(VertexFault("stockout"), {}, FAILED, (8, NO_ROOM), 0, id="no machine"),
        pytest.param(VertexFault("stockout"), FLEX_START, FAILED, (8, WAITED), 0, id="waited"),
        pytest.param(VertexFault("oom", output="ready"), {}, FAILED, (8, LOW), 1, id="no memory"),
        pytest.param(None, {"timeout": {"nanos": 300_000_000}}, JobState.CANCELLED, (1, TOO_LONG), 1, id="time"),
    ],
)
def test_how_a_fault_ends_a_job_in_the_services_words(
    service: Any, fault: Any, scheduling: dict[str, Any], state: JobState, error: tuple[int, str], attempts: int
) -> None:
    if fault:
        service.api.services.faults.arm(fault)
    job = service.ended(service.shell("echo ready; sleep 100", scheduling=scheduling))
    assert (job.state, (job.error.code, job.error.message)) == (state, error)
    assert job.HasField("start_time") == bool(attempts)
    assert job.HasField("end_time")
    said = service.said(job, "service")
    assert said.count("Waiting for job to be provisioned.") == max(1, attempts)
    assert said[-1] == f"Job {state.name.lower()}."


def test_a_job_that_waits_for_machines_gets_them_after_a_stockout(service: Any) -> None:
    service.api.services.faults.arm(VertexFault("stockout", seconds=0.2))
    assert service.ended(service.shell("true", scheduling={"strategy": "FLEX_START"})).state == JobState.SUCCEEDED


def test_a_fault_that_is_armed_while_a_job_runs_reaches_it(service: Any) -> None:
    job = service.shell("[ -e ../ran ] && exit 0; touch ../ran; echo first; sleep 100")
    service.until_said(job, "first")
    service.api.services.faults.arm(VertexFault("preempt"))
    assert service.ended(job).state == JobState.SUCCEEDED
    assert "The replica workerpool0-0 is preempted." in service.said(job, "service")


def test_a_fault_that_a_job_does_not_live_to_meet_is_not_met(service: Any) -> None:
    service.api.services.faults.arm(VertexFault("preempt", output="never said"))
    assert service.ended(service.shell("true")).state == JobState.SUCCEEDED
    assert [each["met"] for each in service.api.services.faults.report()["faults"]] == [0]


def test_a_program_that_exceeds_the_tpus_memory_ends_the_job_with_the_compilers_text(service: Any) -> None:
    message = no_room(20.5, 15.48, "jit_train_step")
    service.api.services.faults.arm(VertexFault("exceed_hbm", output="compiling", message=message))
    job = service.ended(service.shell("echo compiling; sleep 1000"))
    assert (job.state, job.error.code) == (JobState.FAILED, 3)
    assert job.error.message.startswith("The replica workerpool0-0 exited with a non-zero status of 1.")
    assert service.said(job)[-1] == (
        "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO "
        "temporaries (20.50G) exceeds available HBM (15.48G). HLO module: jit_train_step."
    )


def test_a_process_that_somebody_killed_is_explained_and_one_that_was_stopped_is_not(service: Any) -> None:
    job = service.ended(service.shell("kill -9 $$"))
    assert any(line.startswith("137 is SIGKILL: this machine's kernel") for line in service.said(job, "service"))
    stubborn = service.shell("trap '' TERM; echo ready; while :; do sleep 0.1; done")
    service.until_said(stubborn, "ready")
    service.cancel(stubborn)
    assert not any("SIGKILL" in line for line in service.said(service.ended(stubborn), "service"))


def test_faults_are_armed_from_the_start_for_jobs_by_their_names(make_service: Any) -> None:
    service = make_service(faults=(VertexFault("stockout", on="fir*", times=None),))
    image = {"worker_pool_specs": [pool("true")]}
    jobs = [service.ended(service.create(image, name)) for name in ("first", "second")]
    assert [job.state for job in jobs] == [JobState.FAILED, JobState.SUCCEEDED]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("stockout", VertexFault("stockout")),
        ("preempt:train*,output=step 1,5", VertexFault("preempt", "train*", output="step 1,5")),
        ("oom:*,seconds=2.5,times=all", VertexFault("oom", seconds=2.5, times=None)),
        (
            "fail:JobService.Create*,code=RESOURCE_EXHAUSTED,message=no, not now,times=2,after=1",
            VertexFault("fail", "JobService.Create*", "RESOURCE_EXHAUSTED", "no, not now", times=2, after=1),
        ),
    ],
)
def test_a_fault_in_text(text: str, fault: VertexFault) -> None:
    assert VertexFault.parse(text) == fault
    options = VertexOptions(faults=(fault,))
    assert VertexOptions.from_dict(json.loads(json.dumps(options.to_dict()))) == options


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "crash",
            "there is no fault 'crash'; there are fail, stall, preempt, stockout, internal, expire, oom, exceed_hbm",
        ),
        ("fail:*", "code='' is not one of CANCELLED, "),
        ("oom,second=1", "a fault has no 'second'; it has code, message, seconds, output, replica, times, after"),
        ("oom,times=often", "times='often' is not a number"),
        ("oom,times=0", "times=0: a fault happens at least once, or always with None"),
        ("preempt:,seconds=1", "on='' matches nothing; use '*' for all"),
        ("preempt,output=(", "output='(' is not a regular expression: "),
    ],
)
def test_what_is_no_fault(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        VertexFault.parse(text)


@pytest.mark.parametrize("tuning", [False, True])
def test_a_job_for_a_persistent_resource_is_refused_as_there_are_none(service: Any, tuning: bool) -> None:
    spec = {"worker_pool_specs": [pool("true")], "persistent_resource_id": "my-pr"}
    if tuning:
        given = {"hyperparameter_tuning_job": tuning_job(spec)}
    else:
        given = {"custom_job": {"display_name": "job", "job_spec": spec}}
    kind = "HyperparameterTuningJob" if tuning else "CustomJob"
    number = service.api.services.projects.number("p")
    assert service.refused(f"Create{kind}", parent=PARENT, **given) == (
        "NOT_FOUND",
        f"The requested resource projects/{number}/locations/us-central1/persistentResources/my-pr was not found. "
        "t5x-harness does not emulate PersistentResourceService, so there are none here: leave persistent_resource_id "
        "out.",
    )
    assert not service.ask("ListCustomJobs", parent=PARENT).custom_jobs
