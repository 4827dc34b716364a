"""Cloud TPU as a client asks it: JSON, with the session's token."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from t5x_harness.google.server.endpoints import SessionFolder
from t5x_harness.google.session import GoogleSession

ZONE = "projects/t5x-harness/locations/us-central2-b"


class CloudTpu:
    """Asks ``tpu.googleapis.com`` of a session."""

    def __init__(self, session: GoogleSession) -> None:
        self._url = session.endpoints.url
        self._token = SessionFolder(session.endpoints.folder).token.read_text()

    def __call__(self, method: str, path: str, body: Any = None, *, token: str | None = None) -> Any:
        headers = {"Host": "tpu.googleapis.com", "Authorization": f"Bearer {self._token if token is None else token}"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}/v2/{path}", data, headers, method=method)
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)

    def create(self, name: str, accelerator_type: str = "v4-8", **fields: Any) -> Any:
        """Returns a new TPU VM, once it is ready."""
        node = {"acceleratorType": accelerator_type, "runtimeVersion": "tpu-ubuntu2204-base", **fields}
        made = self("POST", f"{ZONE}/nodes?nodeId={name}", node)
        assert "error" not in made, made
        while not self("GET", made["name"])["done"]:
            pass
        return self("GET", f"{ZONE}/nodes/{name}")
