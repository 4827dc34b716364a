"""A call on a pod is made on all hosts; when one of them ends, all do, and the first one is named."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from t5x_harness.execute.host_files import of_host
from t5x_harness.pods.ending import PodEnded
from t5x_harness.pods.run import PodRun
from t5x_harness.pods.start import start_pod
from t5x_harness.slices.slice import get_slice
from t5x_harness.workers.errors import RunDied, RunTimedOut
from t5x_harness.workers.run import RunProcess
from t5x_harness.workers.zygote import Zygote

HERE = Path(__file__).parent
HOSTS = 4
Start = Callable[..., PodRun]


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote(env={"PYTHONUNBUFFERED": None}) as own:
        yield own


@pytest.fixture
def start(zygote: Zygote, tmp_path: Path) -> Iterator[Start]:
    """Starts a pod, which is closed at the end of the test, and counts as stuck after a second."""
    started = []

    def start_host(variables: Mapping[str, str], log: Path) -> RunProcess:
        return zygote.start("pod_objects:Host", {}, log=log, env=variables, python_path=[str(HERE)])

    def start_it(patience: float = 1.0) -> PodRun:
        started.append(start_pod(get_slice("v4-32"), tmp_path / "run.log", start_host, patience))
        return started[-1]

    yield start_it
    for pod in started:
        pod.close()


def test_the_first_host_answers_for_all(start: Start) -> None:
    events: list[Any] = []
    pod = start()
    assert pod.call("train", on_progress=events.append)["host"] == 0
    assert events == [{"stage": "train", "step": 1, "of": 2}]
    assert pod.call("artifacts") == 0


def test_what_only_one_host_finds_has_its_number(start: Start) -> None:
    answer = start().call("train", host=2, does="warns")
    assert answer["findings"] == [{"code": "SEQ28", "message": "host 2 of 4: few files"}]


@pytest.mark.parametrize("host", [0, 3])
def test_a_host_that_is_killed_is_named_with_what_the_others_saw(start: Start, host: int) -> None:
    with pytest.raises(PodEnded) as raised:
        start().call("train", host=host, does="dies")
    assert raised.value.code == "POD12"
    text = (
        rf"host {host} of 4, in train at step 1 of 2: The run was killed by SIGKILL \(out of memory\?\), in train\(\)"
    )
    assert re.match(text, str(raised.value))
    assert re.search(r"; host [0-3] saw: Gloo AllReduce failed: .*: Connection closed by peer", str(raised.value))
    assert "start all of them again" in raised.value.fix


def test_a_host_that_crashes_is_named_with_its_line(start: Start) -> None:
    with pytest.raises(PodEnded, match=r"host 1 of 4, .* was killed by SIGABRT .* line \d+ in crashes"):
        start().call("train", host=1, does="crashes")


def test_a_host_that_is_stopped_is_named(start: Start) -> None:
    with pytest.raises(PodEnded, match=r"host 1 of 4, in train at step 1 of 2: The run was stopped by SIGSTOP"):
        start(patience=60).call("train", host=1, does="stops")


def test_a_failure_on_one_host_ends_the_others(start: Start) -> None:
    answer = start().call("train", host=2, does="fails")
    assert answer["outcome"] == "failed"
    assert answer["findings"] == [{"code": "USR01", "message": "host 2 of 4: metrics.py:3 raised KeyError"}]


def test_a_failure_on_all_hosts_is_the_first_ones(start: Start) -> None:
    answer = start().call("fails")
    assert answer["findings"] == [{"code": "USR01", "message": "metrics.py:3 raised KeyError"}]


def test_a_host_that_does_not_go_on_is_named_with_its_line(start: Start) -> None:
    with pytest.raises(PodEnded) as raised:
        start().call("train", host=1, does="sleeps")
    assert raised.value.code == "POD06"
    text = (
        r"host 1 of 4, in train at step 1 of 2 does not go on, at .*pod_objects\.py:\d+ in sleeps; "
        r"hosts 0, 2, 3 wait for it"
    )
    assert re.fullmatch(text, str(raised.value))


def test_hosts_that_wait_for_one_that_has_ended_its_stage(start: Start) -> None:
    with pytest.raises(
        PodEnded, match=r"hosts 0, 1, 3 wait for others, in train at step 1 of 2 at .*, but train has ended on host 2"
    ):
        start().call("train", host=2, does="ends_early")


def test_a_time_limit_ends_all_hosts(start: Start) -> None:
    pod = start()
    with pytest.raises(RunTimedOut, match=r"took longer than its limit of 0.5 s"):
        pod.call("train", host=1, does="sleeps", timeout=0.5)
    with pytest.raises(RunDied, match="cannot be called"):
        pod.call("train")


def test_nothing_is_left_of_a_pod_that_was_closed_in_a_call(start: Start, tmp_path: Path) -> None:
    pod = start()

    def close(_: Mapping[str, Any]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pod.call("train", host=1, does="sleeps", on_progress=close)
    pod.close()
    pids = [host.pid for host in pod._hosts]
    assert not [pid for pid in pids if _lives(pid)]


def test_each_host_has_its_own_log(start: Start, tmp_path: Path) -> None:
    start().call("train")
    assert [of_host(tmp_path / "run.log", number).name for number in (0, 2)] == ["run.log", "run.host-2.log"]
    assert sorted(path.name for path in tmp_path.glob("*.log")) == [
        "run.host-1.log",
        "run.host-2.log",
        "run.host-3.log",
        "run.log",
    ]


def _lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
