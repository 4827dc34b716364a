"""The history of a training that several processes went through, one after another, from its records."""

import collections
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from t5x_harness.execute.host_files import of_all_hosts

State = Mapping[str, tuple[str, float]]
"""A digest and a norm of each array of a train state, by its path."""


@dataclasses.dataclass
class Life:
    """The part of a training that one process went through.

    Attributes:
      began: the step of the state that it began with.
      states: the states that it reached, by step; the first one is the state that it began with.
      batches: the digests of the examples of the batches that it took, by step.
      number: how many processes had begun the training, including this one.
      shard: the number of the part of the data that it read.
    """

    began: int
    states: dict[int, State]
    batches: dict[int, Sequence[str]] = dataclasses.field(default_factory=dict)
    number: int = 1
    shard: int = 0

    def add(self, batches: Mapping[int, Sequence[str]]) -> None:
        """Adds another host's part of each batch; a batch that one of them did not take is left out."""
        self.batches = {step: [*rows, *batches[step]] for step, rows in self.batches.items() if step in batches}

    @property
    def reached(self) -> int:
        """The last step of which the state is known."""
        return max(self.states)


@dataclasses.dataclass(frozen=True)
class History:
    """A training.

    Attributes:
      lives: its processes, in order; a process that died before it had a state is not among them.
    """

    lives: Sequence[Life]

    @classmethod
    def read(cls, file: Path) -> Self:
        """Reads the record of a training; see :class:`~t5x_harness.execute.record.Recorder`.

        In a pod, each part of a batch is from the first host that reads it, and the states are the first host's.
        """
        first, *others = of_all_hosts(file)
        lives = {life.number: life for life in lives_of(first)}
        shards = {number: {life.shard} for number, life in lives.items()}
        for life in [life for other in others for life in lives_of(other)]:
            if life.number in lives and life.shard not in shards[life.number]:
                shards[life.number].add(life.shard)
                lives[life.number].add(life.batches)
        return cls([*lives.values()])

    def batches(self) -> dict[int, Sequence[str]]:
        """Returns the batches that the final state was trained on, by step.

        What a process trained after the step from which the next one went on is lost, so it does not count.
        """
        found: dict[int, Sequence[str]] = {}
        for life in self.lives:
            found = {step: rows for step, rows in found.items() if step < life.began} | life.batches
        return found

    def states(self) -> dict[int, State]:
        """Returns the states that led to the final one, by step; see :meth:`batches`."""
        found: dict[int, State] = {}
        for life in self.lives:
            found = {step: state for step, state in found.items() if step < life.began} | life.states
        return found


@dataclasses.dataclass(frozen=True)
class Examples:
    """The examples that one training took more or less often than another.

    Attributes:
      again: the number of examples that it took in addition.
      never: the number of examples that it missed.
    """

    again: int
    never: int


def compare_examples(expected: Mapping[int, Sequence[str]], found: Mapping[int, Sequence[str]]) -> Examples:
    """Compares the batches of two trainings, regardless of their order."""
    wanted, taken = (collections.Counter(row for rows in each.values() for row in rows) for each in (expected, found))
    return Examples((taken - wanted).total(), (wanted - taken).total())


def different(expected: State, found: State) -> list[str]:
    """Returns the paths of the arrays that are not the same in two states, or that only one of them has."""
    return sorted(path for path in {*expected, *found} if expected.get(path) != found.get(path))


def lives_of(record: Path) -> list[Life]:
    """Reads the record of one host.

    The last line of a process that was killed may be incomplete, and is left out.
    """
    lives: list[Life] = []
    for line in _lines(record):
        if "began" in line:
            lives.append(Life(line["began"], {line["began"]: _state(line)}, {}, line["life"], line["shard"]))
        elif "rows" in line:
            lives[-1].batches[line["step"]] = line["rows"]
        else:
            lives[-1].states[line["reached"]] = _state(line)
    return lives


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    for text in file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else ():
        if text.endswith("\n"):
            yield json.loads(text)


def _state(line: Mapping[str, Any]) -> State:
    return {path: (digest, norm) for path, (digest, norm) in line["state"].items()}
