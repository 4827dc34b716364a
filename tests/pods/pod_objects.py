"""What the hosts of the tests' pods run; imported by their processes, not by the tests."""

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from t5x_harness.slices.pod import Pod


def _collective() -> Callable[[], None]:
    """Returns a function that waits in a file of JAX, as its stack shows."""
    names: dict[str, Any] = {"time": time}
    exec(compile("def wait():\n    time.sleep(600)", "/installed/jax/array.py", "exec"), names)
    wait: Callable[[], None] = names["wait"]
    return wait


in_collective = _collective()


class Host:
    """One host of a pod, which does what a test asks for."""

    def __init__(self, argument: Mapping[str, Any], progress: Callable[[Mapping[str, Any]], None]) -> None:
        pod = Pod.from_environment(os.environ)
        assert pod is not None
        self.index = pod.index
        self.progress = progress
        self._argument = argument

    def train(self, host: int | None = None, does: str = "") -> dict[str, Any]:
        """Trains; one host does something else at its second step, and the others then wait for it."""
        self.progress({"stage": "train", "step": 1, "of": 2})
        if host is None:
            return self._result()
        if host == self.index:
            return getattr(self, does)()
        if does == "warns":
            return self._result()
        return self._loses_it() if does in ("dies", "crashes") else self._wait()

    def artifacts(self) -> int:
        return self.index

    def dies(self) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGKILL)
        return {}

    def crashes(self) -> dict[str, Any]:
        os.abort()

    def stops(self) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGSTOP)
        return {}

    def sleeps(self) -> dict[str, Any]:
        time.sleep(600)
        return {}

    def ends_early(self) -> dict[str, Any]:
        return self._result()

    def exits(self) -> dict[str, Any]:
        sys.exit(3)

    def fails(self) -> dict[str, Any]:
        return self._result("USR01", "metrics.py:3 raised KeyError")

    def warns(self) -> dict[str, Any]:
        return {**self._result(), "findings": [_finding("SEQ28", "few files")]}

    def _result(self, code: str = "", message: str = "") -> dict[str, Any]:
        outcome, findings = ("failed", [_finding(code, message)]) if code else ("passed", [])
        return {"stage": "train", "outcome": outcome, "findings": findings, "host": self.index}

    def _loses_it(self) -> dict[str, Any]:
        time.sleep(0.3)
        message = "Gloo AllReduce failed: gloo/transport/tcp/pair.cc:547: Connection closed by peer [127.0.0.1]:1"
        return self._result("RUN01", message)

    def _wait(self) -> dict[str, Any]:
        in_collective()
        return {}


def _finding(code: str, message: str) -> dict[str, str]:
    return {"code": code, "message": message}
