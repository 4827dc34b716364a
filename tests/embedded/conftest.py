"""Fixtures for tests of T5X's recorded behavior, in the embedded T5X or in the user's own."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import t5x_in_use

from t5x_harness.runtime.compile_cache import compile_cheaply
from t5x_harness.runtime.cpu_isa import pin
from t5x_harness.workers.errors import RunDied
from t5x_harness.workers.run import RunProcess
from t5x_harness.workers.zygote import Zygote


def pytest_configure() -> None:
    """Makes the T5X in use importable, because test modules import it and the recorded tasks at their top."""
    t5x_in_use.use()


PROGRAM_PATH = (str(Path(__file__).parents[1] / "reference"), str(Path(__file__).parent))
"""The folders in which forked programs find the recorded tasks and their own modules."""
sys.path.append(PROGRAM_PATH[0])


def _compile_cheaply_here() -> None:
    """Makes this process compile as runs do. The options are read once; processes started from here have their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", ""))
        compile_cheaply()
        import jax

        jax.jit(lambda: 0)()


_compile_cheaply_here()


class Programs:
    """Runs the scripts of the embedded runtime, each in a fork of a process that has imported the stack.

    Every program finds the recorded tasks. The session shares compiled programs.
    """

    def __init__(self, zygote: Zygote, folder: Path) -> None:
        self._zygote = zygote
        self._folder = folder

    def start(self, *, log: str = "program.log", brief: bool = True, cpu_isa: str | None = None) -> RunProcess:
        """Forks a process that works in the test's folder and has two devices.

        If ``brief``, it is prepared for a few steps, as runs are; otherwise it is like T5X's own process. For a level
        of instructions, its programs are compiled as T5X compiles them.
        """
        # The session's own options are kept: --xla_cpu_max_isa=SSE4_2 shows what depends on a CPU's instructions.
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2".strip()
        env = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
        if cpu_isa is not None:
            pin(cpu_isa, env)
        elif brief:
            compile_cheaply(env)
        return self._zygote.start(
            "programs:Program",
            {"brief": brief},
            log=self._folder / log,
            cwd=self._folder,
            env=env,
            python_path=PROGRAM_PATH,
        )

    def run(self, module: str, *flags: str, log: str = "program.log") -> tuple[int, str]:
        """Runs ``python -m module flags...``; returns its exit status and output."""
        (self._folder / log).unlink(missing_ok=True)
        with self.start(log=log) as run:
            status = run.call("run", module=module, flags=list(flags), timeout=240)
        return status, (self._folder / log).read_text(errors="replace")

    def die(self, module: str, *flags: str, at: str, number: int) -> None:
        """Runs ``python -m module flags...`` and kills it at the ``number``-th call of ``at``."""
        with self.start(log="killed.log") as run, pytest.raises(RunDied):
            run.call("die_at_call", module=module, flags=list(flags), function=at, number=number, timeout=240)

    def call(self, method: str, **arguments: Any) -> Any:
        """Calls a method of ``programs.Program`` in a fork."""
        with self.start(log="call.log") as run:
            return run.call(method, timeout=240, **arguments)


@pytest.fixture
def programs(zygote: Zygote, tmp_path: Path) -> Programs:
    """Runs scripts in the test's folder."""
    return Programs(zygote, tmp_path)
