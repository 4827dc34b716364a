"""Sets up a Python process under ``t5x-harness exec`` before its program runs, according to its environment."""

from __future__ import annotations

import faulthandler
import importlib
import os
import sys
from types import ModuleType
from typing import Any

from t5x_harness.runtime.import_hooks import BOOTSTRAP_PATH, use_runtime
from t5x_harness.system.after_import import after_import
from t5x_harness.variables import (
    BRIEF_VARIABLE,
    POD_VARIABLE,
    RUNTIME_FOLDER_VARIABLE,
    RUNTIME_VARIABLE,
    SLICE_VARIABLE,
    START_VARIABLE,
    TPU_NUMERICS_VARIABLE,
)

_STEPS_SECONDS = 10.0
"""The seconds between two lines about the progress of training: T5X itself may print nothing for hours."""


def start() -> None:
    """Sets up this process as ``t5x-harness exec`` requested through the environment."""
    preference = os.environ.get(RUNTIME_VARIABLE)
    if preference:
        use_runtime(preference, os.environ.get(RUNTIME_FOLDER_VARIABLE, ""))
        after_import("subprocess", _keep_in_subprocesses)
    slice_name, is_brief = os.environ.get(SLICE_VARIABLE), bool(os.environ.get(BRIEF_VARIABLE))
    if slice_name or is_brief:
        from t5x_harness.upstream.jax import write_cache_entries_atomically

        write_cache_entries_atomically()
        # Every mode of T5X imports this module, after JAX and before making anything.
        after_import("t5x.partitioning", lambda _: _set_up(slice_name, is_brief))
    if os.environ.get(TPU_NUMERICS_VARIABLE) == "1":  # the format that exec writes
        after_import("jax", _round_as_a_tpu)
    if is_brief or os.environ.get(POD_VARIABLE):
        after_import("t5x.trainer", _report_steps)
    if named := os.environ.get(START_VARIABLE):
        _call(named)
    if os.environ.get(POD_VARIABLE):
        from t5x_harness.slices.pod import Pod
        from t5x_harness.system.processes import STACK_SIGNAL
        from t5x_harness.upstream.jax import join_pod_when_needed

        pod = Pod.from_environment(os.environ)
        assert pod
        # The program that started the hosts asks for their stacks when none of them goes on.
        faulthandler.register(STACK_SIGNAL, all_threads=True)
        join_pod_when_needed(pod)


def _call(named: str) -> None:
    """Calls ``MODULE:FUNCTION``, which sets T5X up, unless this interpreter lacks T5X's requirements.

    Any program may be written in Python (gcloud is, and has its own interpreter). T5X cannot run in such an
    interpreter, so there is nothing to set up or to report.
    """
    name, _, function = named.partition(":")
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "t5x_harness":
            raise
        return
    getattr(module, function)()


def _keep_in_subprocesses(subprocess: ModuleType) -> None:
    """Makes interpreters that this one starts with another PYTHONPATH get the same setup."""
    original = subprocess.Popen.__init__

    def start(self: Any, *args: Any, env: Any = None, **kwargs: Any) -> None:
        given = os.environ if env is None else env
        folders = given.get("PYTHONPATH", "").split(os.pathsep)
        if RUNTIME_VARIABLE in given and BOOTSTRAP_PATH not in folders:
            kept = os.pathsep.join([BOOTSTRAP_PATH, *filter(None, folders)])
            env = {**given, "PYTHONPATH": kept}
        original(self, *args, env=env, **kwargs)

    start.__wrapped__ = original  # type: ignore[attr-defined]  # what inspects it sees the signature
    subprocess.Popen.__init__ = start


def _round_as_a_tpu(_: ModuleType) -> None:
    """Makes JAX round as a TPU does, or ends the program if this JAX cannot."""
    from t5x_harness.upstream.jax import JaxLacksRules, use_tpu_numerics

    try:
        use_tpu_numerics(True)
    except JaxLacksRules as error:
        raise SystemExit(f"t5x-harness exec: {error}; install JAX 0.10.2, or run without --tpu-numerics") from None


def _report_steps(trainer: ModuleType) -> None:
    """Makes a job's training report its step from time to time."""
    import time

    from t5x_harness.upstream.t5x import report_steps

    last = time.monotonic()

    def report(step: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _STEPS_SECONDS:
            last = time.monotonic()
            sys.stderr.write(f"t5x-harness: training is at step {step}\n")
            sys.stderr.flush()

    report_steps(trainer, report)


def _set_up(slice_name: str | None, is_brief: bool) -> None:
    if slice_name:
        from t5x_harness.slices.slice import get_slice
        from t5x_harness.upstream.t5x import install_mesh

        install_mesh(get_slice(slice_name))
    if is_brief:
        from t5x_harness.upstream.autograph import keep_conversions
        from t5x_harness.upstream.short_run import configure_for_short_run

        configure_for_short_run()
        after_import("seqio", lambda _: keep_conversions())
