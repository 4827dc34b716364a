"""What CPython keeps to itself: how a program ends short of tearing the interpreter down, and how large frames are."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_SLOTS = 1 << 17
"""Values that the frame claims to need; as many again are left for the frames after it, some thousand of them."""


def run_exit_functions() -> None:
    """Waits for the threads of this process, and calls what it registered with :mod:`atexit`."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()


def call_with_preallocated_frames(function: Callable[..., T], *arguments: object) -> T:
    """Calls ``function(*arguments)``, whose calls in turn, however deep, never wait for memory for their frames.

    CPython keeps the frames of a thread in pieces of 16 KB. A call that does not fit takes a new piece from the kernel
    and gives it back when it returns, so a loop that calls where a piece happens to end makes two system calls for each
    of its own; and tracing with JAX makes millions of calls at all depths. A frame too large for any piece makes
    CPython take one that holds it and, as sizes are doubled, much more; what nobody touches of that costs nothing.
    """
    return function(*arguments)


call_with_preallocated_frames.__code__ = call_with_preallocated_frames.__code__.replace(co_stacksize=_SLOTS)
