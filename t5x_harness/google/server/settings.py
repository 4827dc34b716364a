"""The settings that a server starts with, and the ports and paths that it reports."""

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
      app: the factory of the application for Cloud Storage, as ``module:factory``; it takes the root and returns a
        ``StorageApp``.
    """

    root: Path | None = None
    port: int = 0  # the port for plain HTTP; 0 for any
    proxy_port: int = 0  # the port of the proxy; 0 for any
    owner: int | None = None  # the pid of the process with which the server ends; None if only a signal ends it
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


@dataclasses.dataclass(frozen=True)
class Endpoints:
    """A server's ports, all on 127.0.0.1, and its folders. The server reports them when it is ready."""

    http: int
    tls: int  # the port for HTTPS, and for gRPC from clients that offer only ``h2``
    proxy: int  # the port of the HTTP proxy, which ends TLS itself
    grpc: int  # the port for gRPC without TLS
    folder: Path  # this server's CA, credentials and client configurations; it is removed with the server
    root: Path
    pid: int
    state: str = "memory:"  # the URL at which other processes find Vertex AI's state; ``memory:`` if they cannot

    @property
    def url(self) -> str:
        """``http://127.0.0.1:PORT`` of the plain HTTP port."""
        return f"http://127.0.0.1:{self.http}"

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), default=str)

    @classmethod
    def from_json(cls, line: str | bytes) -> Self:
        values = json.loads(line)
        return cls(**{**values, "folder": Path(values["folder"]), "root": Path(values["root"])})


class SessionFolder:
    """The paths in a server's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.authority = path / "ca.pem"  # the session CA's certificate
        self.server = path / "server.pem"  # the server's key and certificate
        self.credentials = path / "credentials.json"  # the credentials of a service account
        self.token = path / "token"  # the session's own token, for gcloud; a secret, because it can start jobs
        self.boto = path / "boto.cfg"  # the configuration of gsutil
        self.gcloud = path / "gcloud"  # the configuration folder of gcloud
        self.gsutil = path / "gsutil"  # its state
        self.no_certificates = path / "no-certificates"  # empty: replaces the machine's folder of trusted certificates
        self.jobs = path / "jobs"  # the files of Vertex AI's jobs
        self.buckets = path / "root"  # the root of the storage, unless another one is given
        self.programs = path / "bin"  # goes first on PATH, with ssh and scp for gcloud
        self.tpu_vms = path / "tpu"  # the homes of TPU VMs' workers
