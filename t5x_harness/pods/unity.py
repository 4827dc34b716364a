"""Makes one answer of the hosts' answers to the same call, and names hosts in messages."""

from collections.abc import Mapping, Sequence
from typing import Any


def unite(replies: Sequence[Any]) -> Any:
    """Returns the answer of a pod: the first host's, which writes the files, with what only other hosts have found.

    Args:
      replies: the answer of each host, in order; a :class:`~t5x_harness.spec.StageResult` as JSON has findings.
    """
    first = replies[0]
    if not isinstance(first, Mapping) or "findings" not in first:
        return first
    findings = list(first["findings"])
    for number, reply in enumerate(replies[1:], start=1):
        known = {(each["code"], each["message"]) for each in findings}
        findings += [
            {**each, "message": on_host(each["message"], number, len(replies))}
            for each in reply["findings"]
            if (each["code"], each["message"]) not in known
        ]
    return {**first, "findings": findings}


def on_host(message: str, number: int, hosts: int) -> str:
    """Returns a message with the host that it is about."""
    return f"host {number} of {hosts}: {message}"


def in_words(numbers: Sequence[int]) -> str:
    """Returns the names of hosts by their numbers, such as ``hosts 0, 2``."""
    return f"host{'s' * (len(numbers) != 1)} {', '.join(map(str, numbers))}"
