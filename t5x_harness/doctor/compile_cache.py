"""A check of JAX's compilation cache, which some CPUs never hit."""

import re
import subprocess
import sys
from pathlib import Path

from t5x_harness.doctor.check import Environment, Looked, check, warning

_SECONDS = 120.0
# Another process reads what one has compiled with the same code as this one after it has forgotten its programs.
_COMPILE_TWICE = """
import sys, tempfile
import jax

hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event) if event.endswith("/cache_hits") else None)
with tempfile.TemporaryDirectory() as folder:
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    for _ in range(2):
        jax.clear_caches()
        jax.jit(lambda x: x * 2 + 1)(1.0).block_until_ready()
print("hits:", len(hits))
"""
_REFUSED = re.compile(r"Target machine feature (\S+) is not\s+supported on the host machine")
_WITHOUT_AVX512 = "--xla_cpu_max_isa=AVX2"


@check(
    "ENV14",
    "compilation cache",
    why=(
        "JAX keeps compiled programs in a cache on disk, so that the next run of a config compiles nothing. On some "
        "CPUs XLA refuses every program that it has written itself (jax issue 38445), and each run compiles all of its "
        "programs anew, without a message that says so. A tiny program is compiled twice in a process of its own."
    ),
)
def compilation_cache(environment: Environment) -> Looked:
    """Compiles a program twice, and counts how often the second time is read from the cache."""
    jax = environment.by_name.get("jax")
    if jax is None or not Path(jax.folder, "jax").is_dir():
        return "not checked: jax is not installed", []
    hits, said = _compile_twice(environment)
    if hits is None:
        return f"not checked: {said}", []
    if hits:
        return f"{jax} reads what it has compiled before", []
    refused = _REFUSED.search(said)
    reason = f" (XLA refuses its own programs because of {refused[1]}, jax issue 38445)" if refused else ""
    cures, _ = _compile_twice(environment, _WITHOUT_AVX512)
    never = warning(
        f"{jax} never reads a compiled program from its cache on this CPU{reason}: each run compiles all of its own",
        f"export XLA_FLAGS={_WITHOUT_AVX512}, with which it does" if cures else "none is known; use another machine",
    )
    return f"{jax} does not read what it has compiled before", [never]


def _compile_twice(environment: Environment, flags: str = "") -> tuple[int | None, str]:
    """Returns the number of hits, None if nothing was compiled; and what JAX printed, or why nothing was compiled."""
    both = " ".join(filter(None, [environment.variables.get("XLA_FLAGS", ""), flags]))
    variables = {**environment.variables, "JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "true"}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _COMPILE_TWICE],
            env={**variables, "XLA_FLAGS": both},
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return None, f"compiling a tiny program twice had not ended after {_SECONDS:g} s"
    found = re.search(r"^hits: (\d+)$", done.stdout, re.MULTILINE)
    if found is None:
        return None, next(reversed(done.stderr.strip().splitlines()), f"exit status {done.returncode}")
    return int(found[1]), done.stderr
