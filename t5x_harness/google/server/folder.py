"""The folder of one server: what clients are pointed at, so that they look into nobody's home folder."""

from __future__ import annotations

from pathlib import Path


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
