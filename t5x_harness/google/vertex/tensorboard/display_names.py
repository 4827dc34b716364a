"""Display names that only one of a parent's children may have: those of runs, and of time series."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from t5x_harness.google.vertex.resources import aspect_key
from t5x_harness.google.vertex.services import Services
from t5x_harness.google.vertex.wire.errors import ApiError, Code, Violation

__all__ = ["claimed", "release"]


@contextlib.contextmanager
def claimed(services: Services, parent: str, display_name: str, kind: str) -> Iterator[None]:
    """Takes a name for what is made in the block, and gives it back if that fails.

    Args:
      services: that has the parent.
      parent: its full name.
      display_name: the name.
      kind: of the child, such as ``TensorboardRun``.

    Raises:
      ApiError: INVALID_ARGUMENT if it is empty or another child has it. Clients look for ``already exist`` under
        this code, not under ALREADY_EXISTS, and go on with the other child.
    """
    if not display_name:
        raise ApiError.of_violations([Violation("display_name", f"a {kind} has to have one")])
    if not services.state.create(_key(parent, display_name), b""):
        message = f"{kind} with display name {display_name} already exists in {parent}"
        raise ApiError(Code.INVALID_ARGUMENT, message)
    try:
        yield
    except BaseException:
        release(services, parent, display_name)
        raise


def release(services: Services, parent: str, display_name: str) -> None:
    """Gives a name back."""
    services.state.delete(_key(parent, display_name))


def _key(parent: str, display_name: str) -> str:
    return aspect_key(parent, f"display-name/{display_name}")
