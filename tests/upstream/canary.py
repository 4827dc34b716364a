"""A canary: a test that names the library and the release in which a private name is missing."""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Callable
from typing import ParamSpec

import pytest

P = ParamSpec("P")


def canary(library: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Makes a test of a function of ``t5x_harness.upstream`` name the release that is to blame if the test fails.

    Args:
      library: the distribution whose private names the function uses.
    """

    def of(test: Callable[P, None]) -> Callable[P, None]:
        @functools.wraps(test)
        def named(*args: P.args, **kwargs: P.kwargs) -> None:
            try:
                test(*args, **kwargs)
            except Exception as error:
                release = f"{library} {importlib.metadata.version(library)}"
                pytest.fail(
                    f"{release} differs from what t5x_harness/upstream/ expects: {type(error).__name__}: {error}"
                )

        return named

    return of
