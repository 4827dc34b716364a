"""How much memory of this machine a compilation takes, and how much is free."""

from __future__ import annotations

from pathlib import Path

from t5x_harness.aot.compiler import Until

# Bytes of the process before it compiles, and for each operation: a little above what benchmarks/aot.py prints.
_BEGINNING = 1.0 * 2**30
_FOR_EACH_OPERATION = {Until.MEMORY: 60_000.0, Until.CODE: 300_000.0}


def needed_bytes(operations: int, until: Until) -> int:
    """Estimates the memory of this machine that a compilation takes, in bytes.

    Args:
      operations: number of StableHLO operations.
      until: how far the program is compiled.
    """
    return int(_BEGINNING + _FOR_EACH_OPERATION[until] * operations)


def available_bytes(root: Path = Path("/")) -> int | None:
    """Returns the free memory in bytes, of the machine or of the process's control group, whichever has less.

    Args:
      root: the root of the file system.

    Returns:
      None if the system does not say.
    """
    found = [_of_machine(root / "proc/meminfo"), _of_group(root / "sys/fs/cgroup")]
    return min((size for size in found if size is not None), default=None)


def _of_machine(meminfo: Path) -> int | None:
    try:
        lines = meminfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    values = dict(line.split(":", 1) for line in lines if ":" in line)
    free = values.get("MemAvailable", "").split()
    return int(free[0]) * 1024 if free else None


def _of_group(group: Path) -> int | None:
    versions = (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    )
    for limit, used in versions:
        try:
            most = (group / limit).read_text(encoding="utf-8").strip()
            taken = int((group / used).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if most.isdigit():
            return int(most) - taken
    return None
