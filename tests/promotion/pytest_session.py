"""A session of pytest in a fork of a process that has imported pytest and Google's library (see ``conftest.py``)."""

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
    with contextlib.suppress(ModuleNotFoundError):  # the session reports what is missing
        importlib.import_module(_name)


class PytestSession:
    """The object in the forked process."""

    def __init__(self, argument: Mapping[str, Any], progress: Callable[[Mapping[str, Any]], None]) -> None:
        pass

    def run(self, arguments: Sequence[str], stdout: str, stderr: str) -> int:
        """Acts like ``python -m pytest arguments...``, printing to the given files, and returns the exit status."""
        for descriptor, path in ((1, stdout), (2, stderr)):
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, descriptor)
            os.close(file)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        gc.set_threshold(700, 10, 10)
        # The session has to import the plugin: pytest rewrites its assertions, and warns if it is already imported.
        for name in [name for name in sys.modules if name.partition(".")[0] == "t5x_harness"]:
            del sys.modules[name]
        sys.argv = [pytest.__file__, *arguments]
        return int(pytest.main(list(arguments)))
