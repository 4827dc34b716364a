"""The memory of processes."""

import contextlib
import re
from pathlib import Path


def proportional_bytes(pid: int) -> int:
    """Returns the proportional set size of a process, in which a shared page counts in parts; 0 if it has ended."""
    return _bytes_of(pid, "Pss")


def private_bytes(pid: int) -> int:
    """Returns the memory that a process has alone, so that other processes do not change it; 0 if it has ended."""
    return _bytes_of(pid, "Private_(?:Clean|Dirty)")


def _bytes_of(pid: int, name: str) -> int:
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return 1024 * sum(map(int, re.findall(rf"^{name}:\s+(\d+)", text, re.MULTILINE)))
    return 0
