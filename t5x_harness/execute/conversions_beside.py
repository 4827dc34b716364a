"""AutoGraph's conversions made by a process beside this one, while this one goes on importing.

Rewriting SeqIO's functions takes as long as importing TensorFlow, and both are work for one core. A fork that converts
them sends what came of each, and this process keeps it as AutoGraph would.
"""

from __future__ import annotations

import contextlib
import fcntl
import marshal
import multiprocessing
import os
import signal
import traceback
import types
from collections.abc import Iterable, Mapping
from multiprocessing.connection import Connection
from typing import Any

from t5x_harness.execute.conversions import AutoGraph, Conversion, functions_of
from t5x_harness.workers.processes import die_with_parent, kill_quietly

__all__ = ["ConversionsBeside"]

_BYTES = 1 << 20
"""What all conversions of SeqIO's functions have room in; it is what Linux lets a user have."""


class ConversionsBeside:
    """Forks a process that converts functions; for a process of one thread that has imported TensorFlow and SeqIO.

    Args:
      names: as :func:`~t5x_harness.execute.conversions.convert` takes them.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._functions = dict(enumerate(functions_of(names)))
        self._source, sink = multiprocessing.Pipe(duplex=False)
        with contextlib.suppress(OSError):  # the user has many pipes; then the child waits for this one's reader
            fcntl.fcntl(sink.fileno(), fcntl.F_SETPIPE_SZ, _BYTES)
        parent = os.getpid()
        self._child = os.fork()
        if self._child == 0:
            self._source.close()
            _convert_and_send(self._functions, sink, parent)
        sink.close()

    def take(self) -> int:
        """Takes over what is converted, and converts from the other end what is not yet. To be called once.

        Returns:
          How many functions are converted; 0 with a TensorFlow whose AutoGraph is built otherwise.
        """
        autograph = AutoGraph.find()
        with self._source:
            converted = self._take(autograph) if autograph else 0
        kill_quietly(self._child, signal.SIGKILL)  # it may go on with what was converted here
        os.waitpid(self._child, 0)
        return converted

    def _take(self, autograph: AutoGraph) -> int:
        left = dict(self._functions)
        converted = 0
        while left:
            if len(left) > 1 and not self._source.poll():
                converted += autograph.converts(left.popitem()[1])
                continue
            try:
                number, packed = self._source.recv()
            except EOFError:  # it ended before its time
                return converted + sum(autograph.converts(function) for function in left.values())
            function = left.pop(number)
            if packed is not None:
                name, code, source_map = packed
                autograph.keep(function, Conversion(name, marshal.loads(code), source_map))
                converted += 1
        return converted


def _convert_and_send(functions: Mapping[int, types.FunctionType], sink: Connection, parent: int) -> None:
    """In the child. Never returns."""
    try:
        die_with_parent(parent)
        if autograph := AutoGraph.find():
            for number, function in functions.items():
                sink.send((number, _packed(autograph, function)))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _packed(autograph: AutoGraph, function: types.FunctionType) -> tuple[str, bytes, Any] | None:
    """A function's conversion in what pickle takes; None if it cannot be converted."""
    if not autograph.converts(function):
        return None
    conversion = autograph.conversion(function)
    return conversion.name, marshal.dumps(conversion.code), conversion.source_map
