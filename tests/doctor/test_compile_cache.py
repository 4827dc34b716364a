"""The doctor reports a CPU on which JAX reads nothing that it has compiled, and the variable that cures it, if any."""

import os
from pathlib import Path

import pytest

from t5x_harness.doctor.check import Environment, Installed
from t5x_harness.doctor.compile_cache import compilation_cache
from t5x_harness.runtime.choice import Runtime

RUNTIME = Runtime("embedded", "0.1.0", "/lib/t5x_harness/embedded/t5x", "no T5X is installed")

FAKE = """
import os, sys, types

listeners, config = [], types.SimpleNamespace(update=lambda name, value: None)
monitoring = types.SimpleNamespace(register_event_listener=listeners.append)
clear_caches = lambda: None
compiled = []

def jit(function):
    def call(x):
        hit = bool(compiled) and {hits}
        if compiled and not hit:
            print("E0000 cpu_aot_loader.cc:195] Loading XLA:CPU AOT result. Target machine feature +prefer-no-gather "
                  "is not supported on the host machine.", file=sys.stderr)
        compiled.append(x)
        for listener in listeners:
            listener("/jax/compilation_cache/cache_hits" if hit else "/jax/compilation_cache/cache_misses")
        return types.SimpleNamespace(block_until_ready=lambda: None)
    return call
"""


def environment(folder: Path, hits: str) -> Environment:
    (folder / "jax").mkdir()
    (folder / "jax" / "__init__.py").write_text(FAKE.replace("{hits}", hits))
    variables = {**os.environ, "PYTHONPATH": str(folder), "XLA_FLAGS": "--xla_cpu_enable_fast_math=false"}
    return Environment((Installed("jax", "0.10.1", str(folder)),), RUNTIME, variables=variables)


NEVER = (
    "jax 0.10.1 never reads a compiled program from its cache on this CPU (XLA refuses its own programs because of "
    "+prefer-no-gather, jax issue 38445): each run compiles all of its own"
)


def test_a_cache_that_is_hit_is_fine(tmp_path: Path) -> None:
    found = compilation_cache.run(environment(tmp_path, "True"))
    assert (found.status, found.summary) == ("ok", "jax 0.10.1 reads what it has compiled before")


@pytest.mark.parametrize(
    ("hits", "fix"),
    [
        ("False", "none is known; use another machine"),
        (
            "os.environ['XLA_FLAGS'] == '--xla_cpu_enable_fast_math=false --xla_cpu_max_isa=AVX2'",
            "export XLA_FLAGS=--xla_cpu_max_isa=AVX2, with which it does",
        ),
    ],
)
def test_a_cache_that_is_never_hit_is_a_warning(tmp_path: Path, hits: str, fix: str) -> None:
    found = compilation_cache.run(environment(tmp_path, hits))
    assert (found.status, found.summary) == ("warning", "jax 0.10.1 does not read what it has compiled before")
    assert [(f.message, f.fix) for f in found.findings] == [(NEVER, fix)]


def test_what_cannot_be_tried_is_not_checked(tmp_path: Path) -> None:
    assert compilation_cache.run(Environment((), RUNTIME)).summary == "not checked: jax is not installed"
    broken = environment(tmp_path, "True")
    (tmp_path / "jax" / "__init__.py").write_text("raise ImportError('no jaxlib')")
    found = compilation_cache.run(broken)
    assert (found.status, found.summary) == ("ok", "not checked: ImportError: no jaxlib")


@pytest.mark.stack
def test_jax_itself_is_tried() -> None:
    """The programs of a process are read by the same one, so that a CPU for which they are refused shows it here."""
    found = compilation_cache.run(Environment.read(runtime=RUNTIME))
    assert found.summary.startswith("jax ")
    assert ("reads what" in found.summary) == (found.findings == ())
