"""A compilation that would take more memory than this machine has free is refused before it begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from t5x_harness.aot.compiling import available_bytes, needed_bytes
from t5x_harness.aot.libtpu import Until

GIB = 2**30


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


MEMINFO = {"proc/meminfo": f"MemTotal: 99 kB\nMemAvailable:   {8 * GIB // 1024} kB\n"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (MEMINFO, 8 * GIB),
        ({**MEMINFO, "sys/fs/cgroup/memory.max": "max\n", "sys/fs/cgroup/memory.current": "5\n"}, 8 * GIB),
        ({**MEMINFO, "sys/fs/cgroup/memory.max": f"{4 * GIB}\n", "sys/fs/cgroup/memory.current": f"{GIB}\n"}, 3 * GIB),
        (
            {
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2 * GIB}",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{GIB}",
            },
            GIB,
        ),
        ({}, None),
    ],
)
def test_the_least_of_machine_and_control_group_counts(
    tmp_path: Path, files: dict[str, str], expected: int | None
) -> None:
    assert available_bytes(write(tmp_path, files)) == expected


def test_code_takes_more_than_memory() -> None:
    # T5 1.1 base, all layers, has 37,000 operations: 2.8 GiB were measured until memory, 10.8 GiB to the code.
    assert 2.8 * GIB < needed_bytes(37_000, Until.MEMORY) < 4 * GIB
    assert 10.8 * GIB < needed_bytes(37_000, Until.CODE) < 13 * GIB
