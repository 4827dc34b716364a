"""What only several hosts show is found in the records of their first steps."""

import json
from collections.abc import Sequence
from pathlib import Path

from t5x_harness.resume.agreement import disagreements
from t5x_harness.resume.history import History
from t5x_harness.spec import Stage


def record(folder: Path, host: int, *batches: Sequence[str], shard: int | None = None, kernel: str = "k") -> Path:
    """Writes the record of one host, which reads the part of the data with its own number unless another is given."""
    state = {"target/kernel": [kernel, 1.0]}
    lines: list[object] = [{"life": 1, "shard": host if shard is None else shard, "began": 0, "state": state}]
    for step, rows in enumerate(batches):
        lines += [{"step": step, "rows": rows}, {"reached": step + 1, "state": state}]
    file = folder / ("reference.jsonl" if host == 0 else f"reference.host-{host}.jsonl")
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return file


def found(folder: Path) -> list[tuple[str, str]]:
    return [(finding.code, finding.message) for finding in disagreements(folder / "reference.jsonl", Stage.TRAIN)]


def test_hosts_that_read_different_parts_agree(tmp_path: Path) -> None:
    record(tmp_path, 0, ["a", "b"], ["c", "d"])
    record(tmp_path, 1, ["e", "f"], ["g", "a"])
    assert found(tmp_path) == []


def test_hosts_that_share_a_part_have_to_read_the_same(tmp_path: Path) -> None:
    record(tmp_path, 0, ["a", "b"], ["c", "d"])
    record(tmp_path, 1, ["a", "b"], ["d", "c"], shard=0)
    expected = "hosts 0 and 1 read the same part of the data, and their batches of step 1 differ"
    assert found(tmp_path) == [("POD04", expected)]


def test_hosts_that_all_read_the_same(tmp_path: Path) -> None:
    record(tmp_path, 0, ["a", "b"])
    record(tmp_path, 1, ["e", "f"])
    record(tmp_path, 2, ["b", "a"])
    expected = "hosts 0 and 2 read different parts of the data, and have the same 2 examples at step 0"
    assert found(tmp_path) == [("POD04", expected)]


def test_batches_of_equal_examples_say_nothing(tmp_path: Path) -> None:
    record(tmp_path, 0, ["a", "a"])
    record(tmp_path, 1, ["a", "a"])
    assert found(tmp_path) == []


def test_hosts_with_different_states(tmp_path: Path) -> None:
    record(tmp_path, 0, ["a"])
    record(tmp_path, 1, ["b"], kernel="other")
    expected = "hosts 0 and 1 hold different values of what should be the same at step 0: target/kernel"
    assert found(tmp_path) == [("POD23", expected)]


def test_a_batch_is_the_parts_of_all_hosts(tmp_path: Path) -> None:
    """A step whose batch one of the hosts did not take any more is left out."""
    file = record(tmp_path, 0, ["a"], ["b"])
    record(tmp_path, 1, ["a"], ["b"], shard=0)
    record(tmp_path, 2, ["c"])
    for number in range(3, 12):
        record(tmp_path, number, [f"{number}"])
    assert History.read(file).batches() == {0: ["a", "c", *map(str, range(3, 12))]}
