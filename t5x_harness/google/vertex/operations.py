"""Long-running operations, the answers of methods whose results may take a while."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

from google.longrunning.operations_pb2 import Operation
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import Message

from t5x_harness.google.vertex.resources import Resources
from t5x_harness.google.vertex.wire.errors import ApiError, StatusCode
from t5x_harness.google.vertex.wire.rpc_table import Rpc
from t5x_harness.google.vertex.wire.status import to_status

_POLL_SECONDS = 0.02
_PREFIX = "type.googleapis.com/"


class Operations:
    """Operations by name, kept like other resources.

    Args:
      resources: keeps them.
      closing: set when the API ends, so that waiting ends.
    """

    def __init__(self, resources: Resources, closing: threading.Event) -> None:
        self._resources = resources
        self._closing = closing

    def done(self, response: Message, about: str, metadata: Message | None = None) -> Operation:
        """Returns a new operation that is done.

        Args:
          response: the result.
          about: the full name of the resource that is created or changed, or the parent of a deleted one.
          metadata: a message of the class that clients expect; None for none.
        """
        operation = Operation(done=True)
        operation.response.Pack(_raw(response), type_url_prefix=_PREFIX)
        return self._keep(operation, about, metadata)

    def start(self, about: str, metadata: Message | None = None) -> Operation:
        """Returns a new operation that :meth:`finish` will finish; for the arguments see :meth:`done`."""
        return self._keep(Operation(), about, metadata)

    def finish(self, name: str, result: Message | ApiError) -> Operation:
        """Sets the result of an operation, unless it has one."""

        def finish(operation: Any) -> None:
            if operation.done:
                return
            operation.done = True
            if isinstance(result, ApiError):
                operation.error.CopyFrom(to_status(result))
            else:
                operation.response.Pack(_raw(result), type_url_prefix=_PREFIX)

        return self._resources.update(name, Operation, finish)

    def wait(self, name: str, seconds: float) -> Operation:
        """Waits until an operation is done, time is up or the API ends, and returns it; raises ApiError."""
        deadline = time.monotonic() + seconds
        while not (operation := self._resources.get(name, Operation)).done and time.monotonic() < deadline:
            if self._closing.wait(_POLL_SECONDS):
                break
        return operation

    def cancel(self, name: str) -> None:
        """Finishes an operation with the error CANCELLED; raises ApiError (NOT_FOUND)."""
        self.finish(name, ApiError(StatusCode.CANCELLED, "The operation was cancelled."))

    def _keep(self, operation: Operation, about: str, metadata: Message | None) -> Operation:
        if metadata is not None:
            operation.metadata.Pack(_raw(metadata), type_url_prefix=_PREFIX)
        # Like Google's numbers, these are longer than a float can hold, so clients must take them for text.
        name = f"{about}/operations/{random.randrange(10**18, 9 * 10**18)}"
        return self._resources.create(name, operation)


def _raw(message: Any) -> Message:
    """Returns the plain protobuf message of one that may be wrapped by proto-plus."""
    return type(message).pb(message) if hasattr(type(message), "pb") else message


_PACKAGE = "google.cloud.aiplatform.v1"


def metadata_of(rpc: Rpc, now: int) -> Message | None:
    """Returns the metadata of a method's operation, or None if the library has no class for it.

    Args:
      rpc: the method.
      now: nanoseconds since 1970.
    """
    pool = descriptor_pool.Default()
    for name in (f"{rpc.method}OperationMetadata", "DeleteOperationMetadata"):
        try:
            found = pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")
        except KeyError:
            continue
        if name.startswith("Delete") != rpc.method.startswith("Delete"):
            return None
        metadata: Any = message_factory.GetMessageClass(found)()
        metadata.generic_metadata.create_time.FromNanoseconds(now)
        metadata.generic_metadata.update_time.FromNanoseconds(now)
        return metadata
    return None
