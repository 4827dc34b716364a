"""What compiling takes of this machine's memory, and what there is."""

from __future__ import annotations

from pathlib import Path

from t5x_harness.aot.compiler import Until

# Of the process before it compiles, and for each operation: a little above what benchmarks/aot.py prints.
_BEGINNING = 1.0 * 2**30
_FOR_EACH_OPERATION = {Until.MEMORY: 60_000.0, Until.CODE: 300_000.0}


def needed_bytes(operations: int, until: Until) -> int:
    """Returns about how much memory of this machine a compilation takes, in bytes.

    Args:
      operations: of the program as StableHLO.
      until: how far it is compiled.
    """
    return int(_BEGINNING + _FOR_EACH_OPERATION[until] * operations)


def available_bytes(root: Path = Path("/")) -> int | None:
    """Returns the memory that processes here may still take, in bytes; None where the system does not say.

    The least of what the machine and the process's control group have left counts.

    Args:
      root: of the file system.
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
