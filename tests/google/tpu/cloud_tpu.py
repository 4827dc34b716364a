"""A client of Cloud TPU's JSON API with the session's token."""

from pathlib import Path
from typing import Any

from asking import ask

from t5x_harness.google.server.settings import SessionFolder
from t5x_harness.google.session import EmulatedCloud

ZONE = "projects/t5x-harness/locations/us-central2-b"


def has_ended(process: Path) -> bool:
    """Returns whether a process has ended, by its folder in /proc."""
    try:
        return process.joinpath("stat").read_text().rpartition(") ")[2].startswith("Z")
    except OSError:
        return True


class CloudTpu:
    """Sends requests to the ``tpu.googleapis.com`` of a session."""

    def __init__(self, session: EmulatedCloud) -> None:
        self._session = session
        self._token = SessionFolder(session.endpoints.folder).token.read_text()

    def __call__(self, method: str, path: str, body: Any = None, *, token: str | None = None) -> Any:
        headers = {"Authorization": f"Bearer {self._token if token is None else token}"}
        return ask(self._session, "tpu.googleapis.com", f"/v2/{path}", method=method, body=body, headers=headers)

    def create(self, name: str, accelerator_type: str = "v4-8", **fields: Any) -> Any:
        """Creates a TPU VM, and returns it once it is ready."""
        node = {"acceleratorType": accelerator_type, "runtimeVersion": "tpu-ubuntu2204-base", **fields}
        made = self("POST", f"{ZONE}/nodes?nodeId={name}", node)
        assert "error" not in made, made
        while not self("GET", made["name"])["done"]:
            pass
        return self("GET", f"{ZONE}/nodes/{name}")
