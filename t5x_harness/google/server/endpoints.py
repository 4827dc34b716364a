"""Where a running server is reached, as it says itself when it is ready, and the folder that clients are pointed at."""

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


class SessionFolder:
    """The paths in it.

    Attributes:
      authority: the session CA's certificate.
      server: the server's key and certificate.
      credentials: a service account's JSON.
      token: the session's own access token, for ``gcloud``: a secret, as it lets jobs be started.
      boto: the configuration of ``gsutil``.
      gcloud: the configuration folder of ``gcloud``.
      gsutil: the state of ``gsutil``.
      no_certificates: an empty folder, in the place of the machine's folder of trusted certificates.
      jobs: what jobs of Vertex AI need on disk.
      buckets: the root of the storage, where none is named.
      programs: what goes in front of PATH: ``ssh`` and ``scp`` for gcloud.
      tpu_vms: the homes of TPU VMs' workers.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.authority = path / "ca.pem"
        self.server = path / "server.pem"
        self.credentials = path / "credentials.json"
        self.token = path / "token"
        self.boto = path / "boto.cfg"
        self.gcloud = path / "gcloud"
        self.gsutil = path / "gsutil"
        self.no_certificates = path / "no-certificates"
        self.jobs = path / "jobs"
        self.buckets = path / "root"
        self.programs = path / "bin"
        self.tpu_vms = path / "tpu"
