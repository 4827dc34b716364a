"""A Python process that runs code for tests. Only its environment redirects it to an emulated Google Cloud."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["ClientError", "ClientProcess"]

# Runs the code on each line with the same globals, and sends back the value of `result`.
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


class ClientError(Exception):
    """An error in a client.

    Attributes:
      kind: the name of the error's class. The message is the traceback.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class ClientProcess:
    """A process that keeps its imports from one piece of code to the next.

    Args:
      environment: the whole environment of the process.
      log: the file for its output.
      interpreter: the Python executable that it runs.

    Attributes:
      interpreter: the Python executable.
    """

    def __init__(self, environment: Mapping[str, str], log: Path, interpreter: str = sys.executable) -> None:
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

    def run(self, code: str, **given: Any) -> Any:
        """Runs code with the variables ``given``; returns the variable ``result``.

        Raises:
          ClientError: the code raised an error.
        """
        self.start(code, **given)
        return self.finish()

    def start(self, code: str, **given: Any) -> None:
        """Starts to run code like :meth:`run`, without waiting for it."""
        print(json.dumps([textwrap.dedent(code), given]), file=self._asked, flush=True)

    def finish(self) -> Any:
        """Waits for the code that was started; see :meth:`run`."""
        line = self._told.readline()
        assert line, f"the client has ended: {self._log.read_text(errors='replace')[-3000:]}"
        answer = json.loads(line)
        if "error" in answer:
            raise ClientError(answer["kind"], answer["error"])
        return answer["result"]

    def close(self) -> None:
        """Ends the process and its threads."""
        self._asked.close()
        self._told.close()
        self._process.kill()
        self._process.wait()
