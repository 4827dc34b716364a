"""A session of pytest in a fork of a process that has imported pytest and Google's library (see ``conftest.py``)."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from _pytest.config import default_plugins

for _name in (*(f"_pytest.{name}" for name in default_plugins), "google.cloud.aiplatform_v1", "google.cloud.storage"):
    with contextlib.suppress(ModuleNotFoundError):  # the session says what it misses
        importlib.import_module(_name)


class PytestSession:
    """The object in the forked process."""

    def __init__(self, argument: Mapping[str, Any], progress: Callable[[Mapping[str, Any]], None]) -> None:
        pass

    def run(self, arguments: Sequence[str], stdout: str, stderr: str) -> int:
        """Does what ``python -m pytest arguments...`` does, printing to these files, and returns its exit status."""
        for descriptor, path in ((1, stdout), (2, stderr)):
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, descriptor)
            os.close(file)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        gc.set_threshold(700, 10, 10)
        # The plugin is imported by the session: pytest rewrites its assertions, and warns where it comes too late.
        for name in [name for name in sys.modules if name.partition(".")[0] == "t5x_harness"]:
            del sys.modules[name]
        sys.argv = [pytest.__file__, *arguments]
        return int(pytest.main(list(arguments)))
