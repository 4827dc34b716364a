"""Where a running server is reached, as it says itself when it is ready."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Self


@dataclasses.dataclass(frozen=True)
class Endpoints:
    """A server's ports, all on 127.0.0.1, and its folder.

    Attributes:
      http: plain HTTP.
      tls: HTTPS, and gRPC for a client that offers nothing but ``h2``.
      proxy: the HTTP proxy that ends TLS itself.
      grpc: gRPC without TLS.
      folder: of this one server: its CA, its credentials, its empty configurations; removed with it.
      root: holds the buckets.
      state: the URL at which other processes find the state of Vertex AI; ``memory:`` if none can.
    """

    http: int
    tls: int
    proxy: int
    grpc: int
    folder: Path
    root: Path
    pid: int
    state: str = "memory:"

    @property
    def url(self) -> str:
        """``http://127.0.0.1:PORT`` of the plain HTTP port."""
        return f"http://127.0.0.1:{self.http}"

    @property
    def proxy_url(self) -> str:
        """``http://127.0.0.1:PORT`` of the proxy."""
        return f"http://127.0.0.1:{self.proxy}"

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), default=str)

    @classmethod
    def from_json(cls, line: str | bytes) -> Self:
        values = json.loads(line)
        return cls(**{**values, "folder": Path(values["folder"]), "root": Path(values["root"])})
