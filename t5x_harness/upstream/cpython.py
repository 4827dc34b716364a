"""What CPython keeps to itself: how a program ends short of tearing the interpreter down."""

from __future__ import annotations

import atexit
import threading


def run_exit_functions() -> None:
    """Waits for the threads of this process, and calls what it registered with :mod:`atexit`."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
