"""Options that make programs cheap to compile: here a program is compiled for seconds and runs for moments.

They change which instructions are chosen, and therefore the order of sums and the fusion of products with sums. So
single bits of a float differ from the results of XLA's default options; ``--exact-numerics`` leaves the options out.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
from collections.abc import MutableMapping

_OPTIONS = (
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
)
# XLA ends a process that names an option it does not know.
_SINCE_0_10 = (
    "--xla_cpu_opt_preset=FAST_COMPILE",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",  # parts of a small program cost more than they spare
)


def compile_cheaply(environment: MutableMapping[str, str] = os.environ) -> None:
    """Adds the options to ``XLA_FLAGS``, except those that the user set. It must be called before JAX has a backend.

    Args:
      environment: what to change.
    """
    flags = environment.get("XLA_FLAGS", "")
    known = _OPTIONS + (_SINCE_0_10 if _jaxlib_version() >= (0, 10) else ())
    added = [option for option in known if option.split("=")[0] not in flags]
    environment["XLA_FLAGS"] = " ".join(filter(None, [flags, *added]))


def _jaxlib_version() -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", importlib.metadata.version("jaxlib"))
    return (int(match.group(1)), int(match.group(2))) if match else (0, 0)
