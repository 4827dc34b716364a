"""Routes requests by host and path to storage, Vertex AI, Cloud TPU or images, and itself serves tokens and metadata.

Every client gets a token that is good for Cloud Storage. Only a client that signs with the session's key gets the
session's own token, with which jobs can be started. Accounts and their permissions are not emulated.
"""

import asyncio
import functools
import json
from collections.abc import Mapping
from urllib.parse import parse_qs, parse_qsl

from t5x_harness.google import asgi
from t5x_harness.google.asgi import App, Receive, Scope, Send
from t5x_harness.google.identity import ACCOUNT, PRIVATE, PROJECT, PROJECT_NUMBER, TOKEN, Authority
from t5x_harness.google.images import service as image_service
from t5x_harness.google.images.service import ImageService
from t5x_harness.google.product import PRODUCT
from t5x_harness.google.server.hosts import METADATA_HOSTS, is_loopback, is_served
from t5x_harness.google.server.tunnel import Refusals
from t5x_harness.google.server.vertex_endpoint import ADMIN, LOG_ENTRIES, VertexService
from t5x_harness.google.tpu import service as tpu_service
from t5x_harness.google.tpu.service import TpuService

TOKEN_PATHS: Mapping[str, tuple[str, ...]] = {
    "oauth2.googleapis.com": ("/token",),
    "www.googleapis.com": ("/oauth2/v4/token", "/oauth2/v3/token"),
    "accounts.google.com": ("/o/oauth2/token",),
}
"""The paths at which Google's hosts exchange a signed claim or a refresh token for an access token."""

METADATA_PATH = "/computeMetadata/v1/"

_GRANTS = ("urn:ietf:params:oauth:grant-type:jwt-bearer", "refresh_token")
_LIFETIME = 3600
_TOKEN = {"access_token": TOKEN, "expires_in": _LIFETIME, "token_type": "Bearer"}
_ACCOUNT = {
    "aliases": ["default"],
    "email": ACCOUNT,
    "scopes": ["https://www.googleapis.com/auth/cloud-platform"],
}
_METADATA = {
    "instance": {
        "service-accounts": {"default": _ACCOUNT, ACCOUNT: _ACCOUNT},
        "zone": f"projects/{PROJECT_NUMBER}/zones/us-central1-a",
    },
    "project": {"numeric-project-id": PROJECT_NUMBER, "project-id": PROJECT},
    "universe": {"universe-domain": "googleapis.com"},
}


async def answer_token(authority: Authority, scope: Scope, receive: Receive, send: Send) -> None:
    """Answers a well-formed request for an access token."""
    try:
        form = parse_qs((await asgi.body_of(receive)).decode())
    except ValueError as error:
        return await asgi.answer_json(send, 400, {"error": "invalid_request", "error_description": str(error)})
    grant = form.get("grant_type", [""])[0]
    if scope["method"] != "POST" or grant not in _GRANTS:
        description = f"{PRODUCT} gives tokens to a POST with a grant_type of {' or '.join(_GRANTS)}, not {grant!r}"
        return await asgi.answer_json(send, 400, {"error": "unsupported_grant_type", "error_description": description})
    signed = await asyncio.to_thread(authority.has_signed, form.get("assertion", [""])[0])
    return await asgi.answer_json(send, 200, {**_TOKEN, "access_token": authority.token} if signed else _TOKEN)


async def answer_metadata(scope: Scope, send: Send) -> None:
    """Answers as the metadata server of a machine in Google's cloud."""
    if asgi.header_of(scope, b"metadata-flavor") != "Google":
        return await asgi.answer_error(send, 403, "Missing Metadata-Flavor:Google header.")
    path = scope["path"].removeprefix(METADATA_PATH)
    query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
    parts = [part for part in path.split("/") if part]
    if parts[:2] == ["instance", "service-accounts"] and parts[3:] == ["token"]:
        return await asgi.answer_json(send, 200, _TOKEN, {"metadata-flavor": "Google"})
    value: object = _METADATA
    for part in parts:
        if not isinstance(value, dict) or part not in value:
            return await asgi.answer_error(send, 404, f"{PRODUCT}: the emulated metadata server has no {path}")
        value = value[part]
    text, kind = _as_text(value, recursive=query.get("recursive", "").lower() == "true")
    return await asgi.answer(send, 200, text.encode(), {"content-type": kind, "metadata-flavor": "Google"})


def _as_text(value: object, *, recursive: bool) -> tuple[str, str]:
    """Returns a value in the metadata server's form, and its content type: folders are listed, or shown as JSON."""
    if recursive:
        return json.dumps(value), "application/json"
    if isinstance(value, dict):
        return "".join(
            f"{key}/\n" if isinstance(v, dict) else f"{key}\n" for key, v in value.items()
        ), "application/text"
    if isinstance(value, list):
        return "".join(f"{item}\n" for item in value), "application/text"
    return str(value), "application/text"


_STORAGE_HOSTS = ("storage.googleapis.com", "commondatastorage.googleapis.com", "storage.mtls.googleapis.com")
_STORAGE_PATHS = ("/storage/", "/upload/storage/", "/resumable/upload/storage/", "/download/storage/", "/batch")

# Of Cloud Logging, only the logs of jobs are emulated.
_VERTEX_HOSTS = ("aiplatform.googleapis.com", "cloudresourcemanager.googleapis.com", "logging.googleapis.com")
# For names of this machine, which also serve Cloud Storage's paths. No bucket's name is as short as `v1`.
_VERTEX_PATHS = ("/v1/projects/", "/v1beta1/projects/", "/v3/projects/", LOG_ENTRIES, ADMIN)


def front(
    storage: App,
    vertex: VertexService,
    tpu: TpuService,
    images: ImageService,
    authority: Authority,
    refusals: Refusals,
) -> App:
    """Returns the application for all of Google's hosts and for this machine's own names.

    Args:
      vertex: the service that answers for Vertex AI and for projects.
      refusals: the proxy's refusals, which the private path ``PRIVATE/refused`` returns.
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        host = origin = site = b""
        for key, value in scope["headers"]:
            if key == b"host":
                host = value
            elif key == b"origin":
                origin = value
            elif key == b"sec-fetch-site":
                site = value
        name, is_googles = _place(host)
        if refusal := _refusal(name, host, origin, site, scope["scheme"].encode()):
            return await asgi.answer_error(send, 403, f"{PRODUCT}: {refusal}")
        path = scope["path"]
        if path in TOKEN_PATHS.get(name, ()):
            return await answer_token(authority, scope, receive, send)
        if not is_googles:  # a name of this machine
            if path == f"{PRIVATE}/token":
                return await answer_token(authority, scope, receive, send)
            if path == f"{PRIVATE}/refused":
                return await asgi.answer_json(send, 200, refusals.counts)
            if path == tpu_service.OWN_PATH:
                return await tpu.answer(scope, receive, send)
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
        if name == tpu_service.HOST:
            return await tpu.answer(scope, receive, send)
        if name == tpu_service.COMPUTE_HOST and await tpu_service.answer_compute(scope, send):
            return None
        if name.endswith(image_service.REGISTRIES):
            return await images.answer_registry(scope, name, send)
        if name == image_service.ARTIFACTS:
            return await images.answer_artifacts(scope, send)
        if name == image_service.ANALYSIS:
            return await images.answer_analysis(scope, send)
        if name == "iamcredentials.googleapis.com" and path.endswith("/allowedLocations"):
            return await asgi.answer_error(send, 404, f"{PRODUCT}: accounts have no trust boundary here")
        message = (
            f"{PRODUCT} does not emulate {scope['method']} {name}{path}; Cloud Storage, Vertex AI's training, "
            "TPU VMs and tokens are emulated"
        )
        return await asgi.answer_json(send, asgi.NOT_EMULATED, asgi.not_emulated(message))

    return app


@functools.lru_cache(maxsize=1024)
def _place(host: bytes) -> tuple[str, bool]:
    """Returns the name in a Host header, or an empty string for one that is not served, and whether it is Google's."""
    name, colon, port = host.decode("latin-1").lower().rpartition(":")
    if not colon or not port.isdigit():
        name = f"{name}{colon}{port}"
    name = name.removesuffix(".")
    is_googles = is_served(name)
    return (name, is_googles) if is_googles or is_loopback(name) else ("", False)


def _refusal(name: str, host: bytes, origin: bytes, site: bytes, scheme: bytes) -> str:
    """Returns why a request is refused, or an empty string.

    A web page that the user visits may send requests to this server, or point its own domain at 127.0.0.1 and then read
    the answers. Browsers reveal that in headers that clients of Google's APIs do not send.
    """
    if host and not name:  # a request of HTTP/1.0 has no Host header
        return (
            f"{_shown(host)} is neither Google's nor a name of this machine's loopback interface: use "
            "127.0.0.1 or localhost"
        )
    if site in (b"cross-site", b"same-site") or (origin and origin.lower() != b"%b://%b" % (scheme, host.lower())):
        return f"a page of {_shown(origin) or 'another site'} sent this request, and pages of other sites may not"
    return ""


def _shown(header: bytes) -> str:
    return header.decode("ascii", "replace")[:100]


def _is_storage(name: str, path: str) -> bool:
    if name in _STORAGE_HOSTS or name.endswith(".storage.googleapis.com"):
        return True
    return name == "www.googleapis.com" and path.startswith(_STORAGE_PATHS)


def _is_vertex(name: str, path: str) -> bool:
    if name in _VERTEX_HOSTS or name.endswith(("-aiplatform.googleapis.com", "aiplatform.mtls.googleapis.com")):
        return True
    return name == "logging.googleapis.com" and path == LOG_ENTRIES
