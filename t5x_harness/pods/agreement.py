"""Finds out from a training whether each host of a pod reads its part of the data, and all hold the same state."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from t5x_harness.resume.history import Life, different, lives_of, records_of
from t5x_harness.spec import Finding, Severity, Stage

_NAMED = 3
_RANDOM = (
    "take all random numbers of sources and preprocessors from the seed that SeqIO passes, and sort lists of files"
)


def disagreements(record: Path) -> Iterator[Finding]:
    """Yields the mistakes that only several hosts show.

    Args:
      record: the record of the first host's training; those of the others are beside it.
    """
    hosts = [life for life in (next(iter(lives_of(file)), None) for file in records_of(record)) if life is not None]
    yield from itertools.islice(_of_states(hosts), 1)
    yield from itertools.islice(_of_batches(hosts), 1)


def _of_states(hosts: Sequence[Life]) -> Iterator[Finding]:
    first = hosts[0]
    for number, host in enumerate(hosts[1:], start=1):
        for step in sorted(first.states.keys() & host.states.keys()):
            if paths := different(first.states[step], host.states[step]):
                more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
                yield _error(
                    "POD23",
                    f"hosts 0 and {number} hold different values of what should be the same at step {step}: "
                    f"{', '.join(paths[:_NAMED])}{more}",
                    "look for code that asks for the host, the clock or unseeded random numbers where arrays are made",
                )
                break


def _of_batches(hosts: Sequence[Life]) -> Iterator[Finding]:
    for (one, first), (other, second) in itertools.combinations(enumerate(hosts), 2):
        for step in sorted(first.batches.keys() & second.batches.keys()):
            ours, theirs = first.batches[step], second.batches[step]
            if first.shard == second.shard and ours != theirs:
                yield _error(
                    "POD04",
                    f"hosts {one} and {other} read the same part of the data, and their batches of step {step} differ",
                    _RANDOM,
                )
                break
            if first.shard != second.shard and len(set(ours)) > 1 and set(ours) == set(theirs):
                yield _error(
                    "POD04",
                    f"hosts {one} and {other} read different parts of the data, and have the same {len(ours)} examples "
                    f"at step {step}: what one host trains, the other trains again",
                    "let the source or dataset take its part of the data by the shard that SeqIO passes",
                )
                break


def _error(code: str, message: str, fix: str) -> Finding:
    return Finding(code, Severity.ERROR, Stage.TRAIN, message, fix=fix)
