"""Tokens and the metadata server.

Every client gets a token that is good for Cloud Storage. Only a client that signs with the session's key gets the
session's own token, with which jobs can be started. Accounts and their permissions are not emulated.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from urllib.parse import parse_qs, parse_qsl

from t5x_harness.google import asgi
from t5x_harness.google.asgi import Receive, Scope, Send
from t5x_harness.google.identity import ACCOUNT, PROJECT, PROJECT_NUMBER, TOKEN, Authority
from t5x_harness.google.product import PRODUCT

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
    text, kind = _shown(value, recursive=query.get("recursive", "").lower() == "true")
    return await asgi.answer(send, 200, text.encode(), {"content-type": kind, "metadata-flavor": "Google"})


def _shown(value: object, *, recursive: bool) -> tuple[str, str]:
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
