"""Finds out from a training whether each host of a pod reads its part of the data, and all hold the same state."""

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path

from t5x_harness.execute.host_files import of_all_hosts
from t5x_harness.resume.history import Life, different, lives_of
from t5x_harness.spec import Finding, Severity, Stage

_NAMED = 3


def disagreements(record: Path, stage: Stage) -> Iterator[Finding]:
    """Yields the mistakes that only several hosts show: at most one of a kind for each time that they were started.

    Args:
      record: the record of the first host's training; those of the others are beside it.
      stage: the stage that finds them.
    """
    hosts = [{life.number: life for life in lives_of(file)} for file in of_all_hosts(record)]
    for number in sorted(hosts[0]):
        lives = {host: lives[number] for host, lives in enumerate(hosts) if number in lives}
        for found in (_of_states(lives), _of_batches(lives)):
            for code, message, fix in itertools.islice(found, 1):
                yield Finding(code, Severity.ERROR, stage, message, fix=fix)


def _of_states(lives: Mapping[int, Life]) -> Iterator[tuple[str, str, str]]:
    (one, first), *others = lives.items()
    for other, second in others:
        for step in sorted(first.states.keys() & second.states.keys()):
            if paths := different(first.states[step], second.states[step]):
                more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
                values = f"different values of what should be the same at step {step}"
                message = f"hosts {one} and {other} hold {values}: {', '.join(paths[:_NAMED])}{more}"
                why = "code that asks for the host, the clock or unseeded random numbers where arrays are made or read"
                yield "POD23", message, f"look for {why}"
                break


def _of_batches(lives: Mapping[int, Life]) -> Iterator[tuple[str, str, str]]:
    for (one, first), (other, second) in itertools.combinations(lives.items(), 2):
        for step in sorted(first.batches.keys() & second.batches.keys()):
            ours, theirs = first.batches[step], second.batches[step]
            if first.shard == second.shard and ours != theirs:
                message = f"the same part of the data, and their batches of step {step} differ"
                fix = "take all random numbers from the seed that SeqIO passes, and sort lists of files"
            elif first.shard != second.shard and len(set(ours)) > 1 and set(ours) == set(theirs):
                message = f"different parts of the data, and have the same {len(ours)} examples at step {step}"
                fix = "let the source or dataset take its part of the data by the shard that SeqIO passes"
            else:
                continue
            yield "POD04", f"hosts {one} and {other} read {message}", fix
            break
