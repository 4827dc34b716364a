"""AutoGraph's conversions: kept ones, or made by a process beside this one, while this one goes on importing.

Rewriting SeqIO's functions takes as long as importing TensorFlow, and both are work for one core. A fork that converts
them sends the outcome of each, and this process keeps it as AutoGraph would.
"""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import signal
import traceback
import types
from collections.abc import Iterable, Sequence
from multiprocessing.connection import Connection

from t5x_harness.system.processes import die_with_parent, kill_quietly
from t5x_harness.upstream import autograph_cache
from t5x_harness.upstream.autograph import AutoGraph, ConvertedFunction, functions_of

_BYTES = 1 << 20
"""What all conversions of SeqIO's functions have room in; it is what Linux lets a user have."""


class SiblingConversions:
    """Forks a process that converts functions, unless their conversions are kept; take them with :meth:`take`.

    It is for a process of one thread that has imported TensorFlow and SeqIO.

    Args:
      names: as :func:`~t5x_harness.upstream.autograph.convert` takes them.

    Attributes:
      child: pid of the process; None for none.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._functions = functions_of(names)
        self._kept = autograph_cache.load(self._functions) if self._functions else []
        self.child: int | None = None
        if self._kept is None:
            self._fork()

    def take(self) -> int:
        """Takes over what is converted, and converts from the other end what is not yet. To be called once.

        Returns:
          How many functions are converted; 0 with a TensorFlow whose AutoGraph is built otherwise.
        """
        autograph = AutoGraph.find()
        if self._kept is not None:
            return autograph.keep_all(self._functions, self._kept) if autograph else 0
        assert self.child is not None
        with self._source:
            converted = self._convert_the_rest(autograph) if autograph else {}
        kill_quietly(self.child, signal.SIGKILL)  # it may go on with what was converted here
        os.waitpid(self.child, 0)
        if converted:
            autograph_cache.store(self._functions, [converted[number] for number in sorted(converted)])
        return sum(conversion is not None for conversion in converted.values())

    def _fork(self) -> None:
        self._source, sink = multiprocessing.Pipe(duplex=False)
        with contextlib.suppress(OSError):  # the user has many pipes; then the child waits for this one's reader
            fcntl.fcntl(sink.fileno(), fcntl.F_SETPIPE_SZ, _BYTES)
        parent = os.getpid()
        self.child = os.fork()
        if self.child == 0:
            self._source.close()
            _convert_and_send(self._functions, sink, parent)
        sink.close()

    def _convert_the_rest(self, autograph: AutoGraph) -> dict[int, ConvertedFunction | None]:
        """Returns the conversions of all functions, by number: they are kept by AutoGraph now."""
        left = dict(enumerate(self._functions))
        converted: dict[int, ConvertedFunction | None] = {}
        while left:
            if len(left) > 1 and not self._source.poll():
                number, function = left.popitem()
                converted[number] = _conversion(autograph, function)
                continue
            try:
                number, converted[number] = self._source.recv()
            except EOFError:  # it ended before its time
                return converted | {number: _conversion(autograph, function) for number, function in left.items()}
            autograph.keep_all([left.pop(number)], [converted[number]])
        return converted


def _conversion(autograph: AutoGraph, function: types.FunctionType) -> ConvertedFunction | None:
    """Converts a function, if it can be."""
    return autograph.conversion(function) if autograph.converts(function) else None


def _convert_and_send(functions: Sequence[types.FunctionType], sink: Connection, parent: int) -> None:
    """Converts in the child, and sends the result; never returns."""
    try:
        die_with_parent(parent)
        if autograph := AutoGraph.find():
            for number, function in enumerate(functions):
                sink.send((number, _conversion(autograph, function)))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)
