"""Who answers a request: storage, Vertex AI, tokens, the metadata server, or nobody, by its host and path."""

from __future__ import annotations

from t5x_harness.google.serving.asgi import App, Receive, Scope, Send, answer_error, answer_json, header_of
from t5x_harness.google.serving.authority import Authority
from t5x_harness.google.serving.endpoints import PRIVATE
from t5x_harness.google.serving.hosts import METADATA_HOSTS, is_served
from t5x_harness.google.serving.identity import METADATA_PATH, TOKEN_PATHS, answer_metadata, answer_token
from t5x_harness.google.serving.proxy import Refusals
from t5x_harness.google.serving.vertex_service import ADMIN, LOG_ENTRIES, VertexService

__all__ = ["front"]

_STORAGE_HOSTS = ("storage.googleapis.com", "commondatastorage.googleapis.com", "storage.mtls.googleapis.com")
_STORAGE_PATHS = ("/storage/", "/upload/storage/", "/resumable/upload/storage/", "/download/storage/", "/batch")


# Cloud Logging has what jobs say, and nothing else.
_VERTEX_HOSTS = ("aiplatform.googleapis.com", "cloudresourcemanager.googleapis.com", "logging.googleapis.com")
# On names of this machine, which have Cloud Storage's paths, too. No bucket has so short a name as the first.
_VERTEX_PATHS = ("/v1/projects/", "/v1beta1/projects/", "/v3/projects/", LOG_ENTRIES, ADMIN)


def front(storage: App, vertex: VertexService, authority: Authority, refusals: Refusals) -> App:
    """The application that has all of Google's hosts, and this machine's names for them.

    Args:
      storage: answers for Cloud Storage.
      vertex: answers for Vertex AI, and for the numbers of projects.
      authority: knows who is given the session's token.
      refusals: of the proxy, which the private path ``/_t5x_harness/refused`` tells.
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await storage(scope, receive, send)
        host = header_of(scope, b"host").lower().rpartition(":")
        name = (host[0] if host[2].isdigit() else "".join(host)).removesuffix(".")
        path = scope["path"]
        if path in TOKEN_PATHS.get(name, ()):
            return await answer_token(authority, scope, receive, send)
        if not is_served(name):  # a name of this machine: 127.0.0.1, localhost, its host name
            if path == f"{PRIVATE}/token":
                return await answer_token(authority, scope, receive, send)
            if path == f"{PRIVATE}/refused":
                return await answer_json(send, 200, refusals.counts)
            if path.startswith(_VERTEX_PATHS):
                return await vertex.answer(scope, receive, send)
            if not path.startswith(METADATA_PATH):
                return await storage(scope, receive, send)
        if name in METADATA_HOSTS or path.startswith(METADATA_PATH):
            return await answer_metadata(scope, send)
        if _is_storage(name, path):
            return await storage(scope, receive, send)
        if _is_vertex(name, path):
            return await vertex.answer(scope, receive, send)
        if name == "iamcredentials.googleapis.com" and path.endswith("/allowedLocations"):
            return await answer_error(send, 404, "t5x-harness: accounts have no trust boundary here")
        await answer_error(
            send,
            501,
            f"t5x-harness does not emulate {scope['method']} {name}{path}; Cloud Storage, Vertex AI's training and "
            "tokens are emulated",
        )

    return app


def _is_storage(name: str, path: str) -> bool:
    if name in _STORAGE_HOSTS or name.endswith(".storage.googleapis.com"):
        return True
    return name == "www.googleapis.com" and path.startswith(_STORAGE_PATHS)


def _is_vertex(name: str, path: str) -> bool:
    if name in _VERTEX_HOSTS or name.endswith(("-aiplatform.googleapis.com", "aiplatform.mtls.googleapis.com")):
        return True
    return name == "logging.googleapis.com" and path == LOG_ENTRIES
