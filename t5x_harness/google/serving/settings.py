"""What a server is told before it starts."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Self

__all__ = ["APP", "ServerError", "Settings"]

APP = "t5x_harness.google.http.app:make_app"
"""The application that answers for Cloud Storage, as ``module:factory``."""


class ServerError(Exception):
    """The server cannot start or go on; the message says why and what to do."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of a server.

    Attributes:
      root: keeps the buckets; None for a temporary folder that goes with the server.
      port: of plain HTTP; 0 for any.
      proxy_port: of the proxy; 0 for any.
      owner: the pid of a process with which the server ends; None if it ends by a signal alone.
      app: answers for Cloud Storage: ``module:factory``, called with the root.
    """

    root: Path | None = None
    port: int = 0
    proxy_port: int = 0
    owner: int | None = None
    app: str = APP

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(dataclasses.asdict(self), default=str)

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Reads what :meth:`to_json` wrote."""
        values = json.loads(line)
        return cls(**{**values, "root": Path(values["root"]) if values["root"] else None})
