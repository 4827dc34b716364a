"""The dumps of the installed TPU compiler are still those that are read: a tiny step is compiled, without a TPU."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from t5x_harness.aot.buffers import read_assignment
from t5x_harness.aot.costs import costs_of
from t5x_harness.aot.memory import MemoryKind, memory_of
from t5x_harness.aot.program_text import read_program

pytestmark = [
    pytest.mark.stack,
    pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed"),
]


def test_figures_of_a_real_compile_are_the_compilers(repository: Path, tmp_path: Path) -> None:
    script = repository / "tests/aot/tiny_step.py"
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    subprocess.run([sys.executable, str(script), str(tmp_path)], env=environment, check=True, timeout=300)
    facts = json.loads((tmp_path / "facts.json").read_text())
    (text,) = tmp_path.glob("*.after_optimizations.txt")
    (buffers,) = tmp_path.glob("*.after_optimizations-buffer-assignment.txt")
    (ranges,) = tmp_path.glob("*.after_optimizations-live-range.txt")
    program = read_program(text)
    memory = memory_of(program, read_assignment(buffers, ranges))
    assert memory.peak_bytes == pytest.approx(facts["peak_memory_in_bytes"], rel=0.001)
    assert memory.kinds[MemoryKind.PARAMETERS] == memory.kinds[MemoryKind.OPTIMIZER] > 0
    costs = costs_of(program, {"data": 4, "model": 2})
    assert costs.flops == pytest.approx(facts["flops"], rel=0.005)
    assert costs.hbm_bytes == pytest.approx(facts["bytes accessed"], rel=0.005)
    assert {(found.kind, found.axis) for found in costs.collectives} == {
        ("all-reduce", "model"),
        ("all-reduce", "data"),
        ("all-reduce", "data+model"),
    }
