"""What kills a process that loads two libraries is found before a run does."""

from __future__ import annotations

import os
from pathlib import Path

from t5x_harness.doctor import Environment, Installed
from t5x_harness.doctor.loading import triton_after_tensorflow
from t5x_harness.runtime.choice import Runtime

RUNTIME = Runtime("embedded", "0.1.0", "/lib/t5x_harness/embedded/t5x", "no T5X is installed")
KILLS = "import os, signal, sys\nif 'tensorflow' in sys.modules: os.kill(os.getpid(), signal.SIGSEGV)\n"


def environment(folder: Path, triton: str) -> Environment:
    (folder / "tensorflow.py").touch()
    (folder / "triton.py").write_text(triton)
    installed = (Installed("tensorflow", "2.21.0", str(folder)), Installed("triton", "3.7.1", str(folder)))
    return Environment(installed, RUNTIME, variables={**os.environ, "PYTHONPATH": str(folder)})


def test_triton_that_kills_a_process_with_tensorflow(tmp_path: Path) -> None:
    found = triton_after_tensorflow.run(environment(tmp_path, KILLS))
    assert (found.status, found.summary) == ("warning", "triton 3.7.1 does not load after tensorflow 2.21.0")
    assert found.findings[0].message == (
        "a process that imports tensorflow 2.21.0 and then triton 3.7.1 was killed by SIGSEGV (segfault). So is a run "
        "whose modules load Triton by way of PyTorch or transformers"
    )


def test_one_that_loads_and_one_that_says_what_it_lacks(tmp_path: Path) -> None:
    for module in ("", "raise ImportError('no driver')"):
        found = triton_after_tensorflow.run(environment(tmp_path, module))
        assert (found.status, found.summary) == ("ok", "triton 3.7.1 loads after tensorflow 2.21.0")
    assert triton_after_tensorflow.run(Environment((), RUNTIME)).summary == "not both are installed"
