"""The traces of a dead process are described in words, and describing them never fails."""

import signal
from pathlib import Path

import pytest

from t5x_harness.system.diagnosis import crashed_at, describe_status, innermost_frame, read_tail, without_frames

DUMP = """\
Thread 0x01 (most recent call first):
  File "threading.py", line 5 in wait

Current thread 0x02 (most recent call first):
  File "model.py", line 3 in loss
  File "model.py", line 9 in train
  File "workers/run_process.py", line 1 in call
  File "workers/zygote_process.py", line 1 in main
"""


def test_a_signal_without_a_name_has_its_number() -> None:
    number = signal.SIGRTMIN + 3
    assert describe_status(number) == f"was killed by signal {number}"


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"x" * 200_000])
def test_a_tail_can_be_read_of_anything(tmp_path: Path, content: bytes) -> None:
    log = tmp_path / "log"
    log.write_bytes(content)
    assert len(read_tail(log)) <= 1002


def test_a_log_that_is_gone_is_told(tmp_path: Path) -> None:
    assert "the log cannot be read" in read_tail(tmp_path / "gone")


def test_a_place_is_the_users_innermost_frame() -> None:
    assert innermost_frame(DUMP, entry_file="workers/run_process.py") == 'File "model.py", line 3 in loss'
    assert innermost_frame(DUMP, entry_file="elsewhere.py") == ""
    assert innermost_frame("", entry_file="elsewhere.py") == ""


CRASH = """Current thread 0x0 (most recent call first):
  File "stacks_of_an_earlier_timeout.py", line 1 in wait
Fatal Python error: Segmentation fault

Thread 0x1 (most recent call first):
  File "threading.py", line 9 in wait

Current thread 0x2 (most recent call first):
  File "triton/knobs.py", line 15 in <module>
  File "tasks.py", line 1 in <module>

Extension modules: numpy
"""


def test_a_crash_is_where_the_crashed_thread_was() -> None:
    assert crashed_at(CRASH) == 'File "triton/knobs.py", line 15 in <module>'
    assert crashed_at(DUMP) == crashed_at("") == ""


def test_a_stack_has_no_frames_of_the_harness() -> None:
    shown = without_frames(DUMP, entry_file="workers/run_process.py")
    assert shown.splitlines() == DUMP.splitlines()[:-2]
