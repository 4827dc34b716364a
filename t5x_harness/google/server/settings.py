"""The settings of a server, and its errors."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Self

from t5x_harness.google.product import PACKAGE
from t5x_harness.google.vertex.settings import VertexOptions

APP = f"{PACKAGE}.google.storage_http.app:make_app"
"""The application for Cloud Storage, as ``module:factory``."""


class ServerError(Exception):
    """The server cannot start or continue; the message says why and what to do."""


class ServerGone(ServerError, ConnectionError):
    """The server ended without being closed; the message says how."""


@dataclasses.dataclass(frozen=True)
class ServerSettings:
    """Settings of a server.

    Attributes:
      root: the folder that keeps the buckets; None for a temporary folder that is removed with the server.
      port: the port for plain HTTP; 0 for any.
      proxy_port: the port of the proxy; 0 for any.
      owner: the pid of the process with which the server ends; None if only a signal ends it.
      create_buckets: whether missing buckets are created when they are first used.
      app: makes the application for Cloud Storage, a ``StorageApp``: ``module:factory``, called with the root.
      vertex: the options of Vertex AI.
    """

    root: Path | None = None
    port: int = 0
    proxy_port: int = 0
    owner: int | None = None
    create_buckets: bool = False
    app: str = APP
    vertex: VertexOptions = dataclasses.field(default_factory=VertexOptions)

    def to_json(self) -> str:
        return json.dumps({**vars(self), "vertex": self.vertex.to_dict()}, default=str)

    @classmethod
    def from_json(cls, line: str) -> Self:
        values = json.loads(line)
        root = Path(values["root"]) if values["root"] else None
        return cls(**{**values, "root": root, "vertex": VertexOptions.from_dict(values["vertex"])})
