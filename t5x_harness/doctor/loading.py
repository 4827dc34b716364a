"""Libraries that one process cannot load together."""

from __future__ import annotations

import subprocess
import sys

from t5x_harness.doctor.check import Looked, check, looked, warning
from t5x_harness.doctor.environment import Environment
from t5x_harness.system.diagnosis import describe_returncode

_IMPORT_SECONDS = 300.0


@check(
    "ENV13",
    "Triton after TensorFlow",
    why=(
        "PyTorch's builds for GPUs bring Triton, and some of its releases end a process that has loaded TensorFlow, "
        "with a signal and without a message. T5X loads TensorFlow first, so a task module that loads Triton by way of "
        "PyTorch or transformers ends its run, here and in a job. It is tried in a process of its own where both are "
        "installed. `t5x-harness convert --check` runs transformers in a process without TensorFlow."
    ),
)
def triton_after_tensorflow(environment: Environment) -> Looked:
    """Imports the one after the other, in a process of its own."""
    tensorflow, triton = (environment.by_name.get(name) for name in ("tensorflow", "triton"))
    if tensorflow is None or triton is None:
        return looked("not both are installed")
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", "import tensorflow; import triton"],
            env=environment.variables,
            capture_output=True,
            check=False,
            timeout=_IMPORT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return looked(f"not checked: importing both had not ended after {_IMPORT_SECONDS:g} s")
    if done.returncode >= 0:  # what raises has a message of its own where it is imported
        return looked(f"{triton} loads after {tensorflow}")
    killed = warning(
        f"a process that imports {tensorflow} and then {triton} {describe_returncode(done.returncode)}. So is a "
        "run whose modules load Triton by way of PyTorch or transformers",
        "install PyTorch's build for CPUs, which brings no Triton, and: python -m pip uninstall -y triton",
    )
    return looked(f"{triton} does not load after {tensorflow}", killed)
