"""The states of a custom job for any events in any order."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from t5x_harness.google.vertex.jobs import machine
from t5x_harness.google.vertex.jobs.endings import JobState, unable
from t5x_harness.google.vertex.jobs.machine import JobEvent, Policy, Progress, StartUnits, StopUnits, advance

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
