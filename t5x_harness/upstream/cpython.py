"""Private names of CPython: for ending a program without finalizing the interpreter, and for the frames of threads."""

import atexit
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

T = TypeVar("T")

_SLOTS = 1 << 17
"""The number of values that the frame claims to need. As much memory is left after it, for some thousand frames."""


def run_exit_functions() -> None:
    """Waits for the threads of this process, and calls the functions registered with :mod:`atexit`."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()


def frames_of_threads() -> dict[int, FrameType]:
    """Returns the innermost frame of each thread, by the thread's ident."""
    return sys._current_frames()


def call_with_preallocated_frames(function: Callable[..., T], *arguments: object) -> T:
    """Calls ``function(*arguments)`` with enough memory for the frames of all nested calls.

    CPython keeps the frames of a thread in pieces of 16 KB. A call that does not fit gets a new piece from the kernel
    and returns it when it ends. So a loop of calls at the end of a piece makes two system calls in each round, and
    tracing with JAX makes millions of calls at all depths. For a frame that is larger than a piece, CPython allocates a
    larger one and, as it doubles sizes, much more; memory that is never touched costs nothing.
    """
    return function(*arguments)


call_with_preallocated_frames.__code__ = call_with_preallocated_frames.__code__.replace(co_stacksize=_SLOTS)
