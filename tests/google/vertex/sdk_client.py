"""Unmodified SDKs: processes that import one, with nothing but a session's environment to lead them to it.

The SDK of this environment is tested always, and those of the interpreters that ``T5X_HARNESS_TEST_SDKS`` lists too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from client_process import ClientProcess

__all__ = ["INTERPRETERS", "SdkClient"]

INTERPRETERS = [sys.executable, *filter(None, os.environ.get("T5X_HARNESS_TEST_SDKS", "").split(os.pathsep))]

_BEGIN = """
import functools
from google.api_core import exceptions
from google.cloud import aiplatform as ai
from google.cloud.aiplatform.metadata.metadata import _experiment_tracker

def begin(transport):
    global init
    _experiment_tracker.reset()
    _experiment_tracker._global_tensorboard = None
    ai.initializer.global_config.__init__()
    # All of it each time: an init that names no project goes back to the SDK's own choice of a transport.
    init = functools.partial(ai.init, project="t5x-harness", location="us-central1", api_transport=transport)
    init()
"""


class SdkClient(ClientProcess):
    """A process that has imported the SDK as ``ai``, and runs code.

    Args:
      interpreter: the Python that has it.
      environment: of a session.
      log: takes what it prints.
    """

    def __init__(self, interpreter: str, environment: Mapping[str, str], log: Path) -> None:
        super().__init__(environment, log, interpreter)
        self.run(_BEGIN)
