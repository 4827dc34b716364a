"""Unmodified SDKs: processes that import one, with nothing but a session's environment to lead them to it.

The SDK of this environment is tested always, and those of the interpreters that ``T5X_HARNESS_TEST_SDKS`` lists too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["INTERPRETERS", "SdkClient", "SdkError"]

INTERPRETERS = [sys.executable, *filter(None, os.environ.get("T5X_HARNESS_TEST_SDKS", "").split(os.pathsep))]

# Runs what it is sent line by line: all of it sees the same names, and the value of `result` goes back.
_LOOP = """
import json, sys, traceback
asked, told = open(int(sys.argv[1])), open(int(sys.argv[2]), "w")
names = {}
for line in asked:
    code, given = json.loads(line)
    names |= {**given, "result": None}
    try:
        exec(compile(code, "<client>", "exec"), names)
        answer = {"result": names["result"]}
    except BaseException as error:
        answer = {"error": traceback.format_exc(), "kind": type(error).__name__}
    print(json.dumps(answer), file=told, flush=True)
"""

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


class SdkError(Exception):
    """What the SDK raised.

    Attributes:
      kind: the name of its class; the text is its traceback.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class SdkClient:
    """A process that has imported the SDK as ``ai``, and runs code.

    Args:
      interpreter: the Python that has it.
      environment: of a session.
      log: takes what it prints.

    Attributes:
      interpreter: as above.
    """

    def __init__(self, interpreter: str, environment: Mapping[str, str], log: Path) -> None:
        reading, to_it = os.pipe()
        from_it, writing = os.pipe()
        self.interpreter = interpreter
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [interpreter, "-c", _LOOP, str(reading), str(writing)],
                env=dict(environment),
                pass_fds=(reading, writing),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        os.close(reading)
        os.close(writing)
        self._asked, self._told = os.fdopen(to_it, "w"), os.fdopen(from_it)
        self.run(_BEGIN)

    def run(self, code: str, **given: Any) -> Any:
        """Runs code that sees ``given`` by name; returns what it leaves in ``result``.

        Raises:
          SdkError: it raised something.
        """
        self.start(code, **given)
        return self.finish()

    def start(self, code: str, **given: Any) -> None:
        """Begins what :meth:`run` does, without waiting for it."""
        print(json.dumps([textwrap.dedent(code), given]), file=self._asked, flush=True)

    def finish(self) -> Any:
        """Waits for what was started; see :meth:`run`."""
        line = self._told.readline()
        assert line, f"the client has ended: {self._log.read_text(errors='replace')[-3000:]}"
        answer = json.loads(line)
        if "error" in answer:
            raise SdkError(answer["kind"], answer["error"])
        return answer["result"]

    def close(self) -> None:
        """Ends the process."""
        self._asked.close()
        self._told.close()
        self._process.wait(60)
