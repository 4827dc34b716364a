"""A run that tells which large programs were compiled, and by which thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from jax._src import monitoring

from t5x_harness.execute.session import Session, open_session

PROGRAMS = ("jit(train_step)", "jit(one_eval_step)", "jit(step)")


class Watched:
    """A session whose compilations are listened to."""

    def __init__(self, argument: Mapping[str, Any], progress: Callable[[dict[str, Any]], None]) -> None:
        self._compiled: list[tuple[str, str]] = []
        monitoring.register_event_duration_secs_listener(self._listen)
        self._session: Session = open_session(argument, progress)

    def train(self) -> str:
        """The outcome of training."""
        return str(self._session.train()["outcome"])

    def evaluate(self) -> str:
        """The outcome of evaluating what was trained."""
        return str(self._session.eval()["outcome"])

    def compiled(self) -> list[tuple[str, str]]:
        """Names of programs and of threads, in the order in which they were ready."""
        return sorted(self._compiled)

    def _listen(self, event: str, seconds: float, **facts: Any) -> None:
        if event.endswith("backend_compile_duration") and facts.get("fun_name") in PROGRAMS:
            self._compiled.append((facts["fun_name"], threading.current_thread().name))
