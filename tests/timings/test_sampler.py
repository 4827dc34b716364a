"""A sampler adds up what a thread is seen doing, and what it waits for."""

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from types import FrameType

import pytest

from t5x_harness.timings.sampler import WAITING, Sampler


def named(frame: FrameType) -> str:
    """Returns the name of the function of a test that is innermost in a stack."""
    names = []
    found: FrameType | None = frame
    while found is not None:
        names.append(found.f_code.co_name)
        found = found.f_back
    return next((name for name in names if name in ("first", "second", "busy")), "nothing")


def busy(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def first() -> None:
    time.sleep(0.3)


def second() -> None:
    busy(0.2)


def test_everything_adds_up_to_the_time_that_passed() -> None:
    began = time.perf_counter()
    with Sampler(named) as sampler:
        first()
        second()
        time.sleep(0.1)
    passed = time.perf_counter() - began
    assert sum(sampler.seconds.values()) == pytest.approx(passed, rel=0.05)
    assert sampler.seconds["first"] >= 0.2
    assert sampler.seconds["busy"] + sampler.seconds[WAITING] >= 0.15
    assert sampler.seconds["nothing"] >= 0.05
    assert list(sampler.rounded().values()) == sorted(sampler.rounded().values(), reverse=True)


def test_what_another_thread_does_counts_while_it_is_waited_for() -> None:
    with Sampler(named) as sampler:
        thread = threading.Thread(target=first)
        thread.start()
        thread.join()
    assert sampler.seconds["first"] >= 0.2


IDLE = """
import threading
from concurrent.futures import ThreadPoolExecutor
from t5x_harness.timings.sampler import Sampler

with ThreadPoolExecutor() as pool:
    pool.submit(int).result()
    released = threading.Event()
    threading.Timer(0.3, released.set).start()
    with Sampler(lambda frame: frame.f_code.co_filename) as sampler:
        released.wait()
print(threading.__file__, max(sampler.seconds, key=sampler.seconds.get))
"""


def test_an_idle_worker_of_a_pool_is_not_what_is_waited_for() -> None:
    # In a process of its own, which has no other threads.
    done = subprocess.run([sys.executable, "-c", IDLE], capture_output=True, text=True, check=True)
    waits, seen = done.stdout.split()
    assert seen == waits


def test_a_thread_that_waits_for_a_core_is_seen_to_wait(request: pytest.FixtureRequest) -> None:
    cores = os.sched_getaffinity(0)
    request.addfinalizer(lambda: os.sched_setaffinity(0, cores))
    os.sched_setaffinity(0, {min(cores)})
    other = multiprocessing.get_context("fork").Process(target=busy, args=(60.0,), daemon=True)
    other.start()
    try:
        with Sampler(named) as sampler:
            busy(0.3)
    finally:
        other.kill()
        other.join()
    assert sampler.seconds[WAITING] >= 0.2 * sampler.seconds["busy"]


def test_an_error_ends_it() -> None:
    before = threading.active_count()
    with pytest.raises(ValueError, match="of the work"), Sampler(named):
        raise ValueError("of the work")
    assert threading.active_count() == before
