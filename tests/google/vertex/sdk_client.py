"""Processes with an unmodified SDK, which only a session's environment redirects.

The SDK of this environment is always tested, and also those of the interpreters in ``T5X_HARNESS_TEST_SDKS``.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from client_process import ClientProcess

__all__ = ["INTERPRETERS", "SdkClient", "both_transports"]

both_transports = pytest.mark.parametrize("sdk", ["grpc", "rest"], indirect=True)

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
      interpreter: a Python that has the SDK.
      environment: a session's environment.
      log: the file for its output.
    """

    def __init__(self, interpreter: str, environment: Mapping[str, str], log: Path) -> None:
        super().__init__(environment, log, interpreter)
        self.run(_BEGIN)
