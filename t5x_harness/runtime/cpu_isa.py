"""One CPU's numbers on another: programs compiled for instructions that both have, with nothing else chosen by the CPU.

Otherwise XLA compiles for every instruction of the CPU, and its library for matrix products looks at the CPU each time,
its caches included, so that sums of float32 have another order on another machine.
"""

import os
import platform
from collections.abc import Mapping, MutableMapping
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")

LEVELS: Mapping[str, tuple[str, frozenset[str]]] = {
    "sse4.2": ("SSE4_2", frozenset({"sse4_2"})),
    "avx2": ("AVX2", frozenset({"avx2", "fma"})),
    "avx512": ("AVX512", frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"})),
}
"""The levels of instructions, lowest first: XLA's name for each, and what the kernel calls a CPU that has it."""


def why_not(level: str, cpuinfo: Path = _CPUINFO) -> str:
    """Returns the reason that programs cannot be compiled for a level here; empty if they can.

    Args:
      level: a name that may be in :data:`LEVELS`.
      cpuinfo: the file in which Linux describes the CPU.
    """
    if level not in LEVELS:
        return f"there is no such level: {', '.join(LEVELS)}"
    if not cpuinfo.exists():
        return f"levels of instructions are those of x86-64 CPUs under Linux, and this machine is {platform.machine()}"
    text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    has = next((set(line.split()) for line in text.splitlines() if line.startswith("flags")), set[str]())
    if not (missing := sorted(LEVELS[level][1] - has)):
        return ""
    known = [name for name, (_, needed) in LEVELS.items() if needed <= has]
    instead = f"; it has {', '.join(known)}" if known else ""
    return f"this CPU lacks {', '.join(missing)}{instead}"


def pin(level: str | None, environment: MutableMapping[str, str] = os.environ) -> None:
    """Makes XLA compile programs for a level of instructions, before JAX has a backend.

    Args:
      level: a name in :data:`LEVELS`; None to change nothing.
      environment: the environment to change; options that are in its ``XLA_FLAGS`` stay as they are.
    """
    if level is None:
        return
    flags = environment.get("XLA_FLAGS", "")
    # The second option keeps matrix products from the library that looks at the CPU.
    wanted = (f"--xla_cpu_max_isa={LEVELS[level][0]}", "--xla_cpu_enable_platform_dependent_math=false")
    added = [option for option in wanted if option.split("=")[0] not in flags]
    environment["XLA_FLAGS"] = " ".join(filter(None, [flags, *added]))
