"""Processes that need the same program at the same time."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

COMPILES = """
import json, sys, time
from pathlib import Path
from t5x_harness.upstream.jax import compile_once
compile_once()
import jax, jax._src.compiler as compiler
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
compile_, compiled = compiler.backend_compile_and_load, []
def counted(backend, module, *rest):
    compiled.append(str(module.operation.attributes["sym_name"]))
    if "wanted" in compiled[-1]:
        print("compiling", flush=True)
        sys.stdin.readline()
    return compile_(backend, module, *rest)
compiler.backend_compile_and_load = counted
def wanted(x):
    return x * 2 + 1
print(json.dumps([float(jax.jit(wanted)(3.0)), sum("wanted" in name for name in compiled)]), flush=True)
"""


@contextmanager
def compiling(cache: Path) -> Iterator[subprocess.Popen[str]]:
    """Starts a process that says that it compiles a program, and does so once it is sent a line."""
    program = [sys.executable, "-c", COMPILES, str(cache)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(program, env=environment, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_the_second_process_reads_what_the_first_one_compiles(tmp_path: Path) -> None:
    with compiling(tmp_path) as first:
        assert said(first) == "compiling"
        with compiling(tmp_path) as second:
            go_on(first)
            assert json.loads(said(first)) == [7.0, 1]
            assert json.loads(said(second)) == [7.0, 0]


def test_a_program_whose_compiler_dies_is_compiled_by_the_next(tmp_path: Path) -> None:
    with compiling(tmp_path) as first:
        assert said(first) == "compiling"
        with compiling(tmp_path) as second:
            first.kill()
            assert said(second) == "compiling"
            go_on(second)
            assert json.loads(said(second)) == [7.0, 1]
