"""The folder of one server: what clients are pointed at, so that they look into nobody's home folder."""

from __future__ import annotations

import dataclasses
from pathlib import Path

__all__ = ["SessionFolder"]


@dataclasses.dataclass(frozen=True)
class SessionFolder:
    """The paths in it.

    Attributes:
      path: the folder.
    """

    path: Path

    @property
    def authority(self) -> Path:
        """The session CA's certificate."""
        return self.path / "ca.pem"

    @property
    def server(self) -> Path:
        """The server's key and certificate."""
        return self.path / "server.pem"

    @property
    def credentials(self) -> Path:
        """A service account's JSON."""
        return self.path / "credentials.json"

    @property
    def token(self) -> Path:
        """The session's own access token, for ``gcloud``: a secret, as it lets jobs be started."""
        return self.path / "token"

    @property
    def boto(self) -> Path:
        """The configuration of ``gsutil``."""
        return self.path / "boto.cfg"

    @property
    def gcloud(self) -> Path:
        """The configuration folder of ``gcloud``."""
        return self.path / "gcloud"

    @property
    def gsutil(self) -> Path:
        """The state of ``gsutil``."""
        return self.path / "gsutil"

    @property
    def no_certificates(self) -> Path:
        """An empty folder, in the place of the machine's folder of trusted certificates."""
        return self.path / "no-certificates"

    @property
    def jobs(self) -> Path:
        """What jobs of Vertex AI need on disk."""
        return self.path / "jobs"

    @property
    def buckets(self) -> Path:
        """The root of the storage, where none is named."""
        return self.path / "root"
