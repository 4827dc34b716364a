"""Signed URLs of the XML API, V4: who has one needs no account, and it is good for one request and for some time."""

import asyncio
import datetime
import hashlib
import re
from collections.abc import Sequence
from urllib.parse import parse_qsl, quote

from t5x_harness.google.asgi import App, Receive, Scope, Send
from t5x_harness.google.identity import ACCOUNT, Authority
from t5x_harness.google.product import PRODUCT
from t5x_harness.google.storage.errors import Invalid, StoreError
from t5x_harness.google.storage_http.answers import error_xml

_ALGORITHM = "GOOG4-RSA-SHA256"
_FIELDS = ("Algorithm", "Credential", "Date", "Expires", "SignedHeaders", "Signature")
_SIGNED = b"x-goog-signature="
_DATE = "%Y%m%dT%H%M%SZ"
_LONGEST = 7 * 24 * 3600  # seconds
_SKEW = datetime.timedelta(minutes=15)


class BadSignature(StoreError):
    """The URL was signed for another request, or by another account than the session's."""

    status, code = 403, "SignatureDoesNotMatch"


def checked(app: App, authority: Authority) -> App:
    """Returns Cloud Storage that refuses signed URLs that are not good; requests without a signature pass."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if _SIGNED in scope["query_string"].lower():
            try:
                await asyncio.to_thread(check_signed_url, scope, authority)
            except StoreError as error:
                # What was signed here is what a client has to compare its own text with.
                return await error_xml(error, details=canonical_request(scope)).send(send)
        return await app(scope, receive, send)

    return answer


def check_signed_url(scope: Scope, authority: Authority) -> None:
    """Checks the signature of a request.

    Raises:
      Invalid: a parameter is missing or malformed, or the URL has expired.
      BadSignature: the signature is not the session's account's for this request.
    """
    given = {name.lower(): value for name, value in _parameters(scope)}
    algorithm, credential, date, expires, names, signature = (
        given.get(f"x-goog-{name.lower()}", "") for name in _FIELDS
    )
    account, _, scope_of_key = credential.partition("/")
    if algorithm != _ALGORITHM or account != ACCOUNT:
        raise BadSignature(
            f"{PRODUCT} takes URLs that {ACCOUNT} has signed by {_ALGORITHM}, not {account} by {algorithm}"
        )
    try:
        start = datetime.datetime.strptime(date, _DATE).replace(tzinfo=datetime.UTC)
        seconds, signed = int(expires), bytes.fromhex(signature)
    except ValueError:
        raise Invalid("X-Goog-Date, X-Goog-Expires or X-Goog-Signature is missing or malformed") from None
    if not 0 < seconds <= _LONGEST:
        raise Invalid(f"X-Goog-Expires has to be 1 to {_LONGEST} seconds, not {seconds}")
    now = datetime.datetime.now(datetime.UTC)
    if now > (end := start + datetime.timedelta(seconds=seconds)):
        raise Invalid(f"The signed URL expired at {end:%Y-%m-%dT%H:%M:%SZ}.", code="ExpiredToken")
    if now < start - _SKEW:
        raise Invalid(f"The signed URL is not good before {start:%Y-%m-%dT%H:%M:%SZ}.", code="AccessDenied")
    if "host" not in names.split(";"):
        raise Invalid("X-Goog-SignedHeaders has to name host")
    digest = hashlib.sha256(canonical_request(scope).encode()).hexdigest()
    if not authority.has_signed_bytes("\n".join([algorithm, date, scope_of_key, digest]).encode(), signed):
        raise BadSignature(
            "The URL was signed for another request: its method, path, parameters and signed headers count."
        )


def canonical_request(scope: Scope) -> str:
    """Returns the text of a request whose hash a signature covers."""
    parameters = _parameters(scope)
    names = next((value for name, value in parameters if name.lower() == "x-goog-signedheaders"), "").split(";")
    headers: dict[str, str] = {}
    for key, value in scope["headers"]:
        name, text = key.decode("latin-1").lower(), re.sub(r"\s+", " ", value.decode("latin-1")).strip()
        headers[name] = f"{headers[name]},{text}" if name in headers else text
    quoted = [
        f"{quote(name, safe='~')}={quote(value, safe='~')}" for name, value in parameters if not _is_signature(name)
    ]
    return "\n".join(
        [
            scope["method"],
            scope["raw_path"].decode("latin-1").partition("?")[0],
            "&".join(sorted(quoted)),
            *(f"{name}:{headers.get(name, '')}" for name in names),
            "",
            ";".join(names),
            headers.get("x-goog-content-sha256", "UNSIGNED-PAYLOAD"),
        ]
    )


def _parameters(scope: Scope) -> Sequence[tuple[str, str]]:
    return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)


def _is_signature(name: str) -> bool:
    return name.lower() == "x-goog-signature"
