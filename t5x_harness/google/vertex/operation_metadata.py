"""What operations tell of themselves, in the classes that clients unpack it to."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import Message

from t5x_harness.google.vertex.wire.rpc_table import Rpc

__all__ = ["metadata_of"]

_PACKAGE = "google.cloud.aiplatform.v1"


def metadata_of(rpc: Rpc, now: int) -> Message | None:
    """Metadata of an operation that a method answers with; None if the library has no class for it.

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
        made: Message = metadata
        return made
    return None
