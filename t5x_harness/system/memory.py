"""The memory of this machine."""

from pathlib import Path


def available_bytes() -> int:
    """Returns the free memory of this machine, or of this container if it has a limit."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    group = Path("/sys/fs/cgroup")
    try:
        limit, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):  # no limit, or "max"
        return free
    return min(free, limit - used)
