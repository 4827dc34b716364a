"""Who may ask for more than objects: clients that hold the session's token, or sign with the session's key."""

from __future__ import annotations

import base64
import binascii
import collections
import hmac
import json
import secrets
import threading
import time
import zlib
from typing import Any

from t5x_harness.google.product import PACKAGE, PRODUCT

PROJECT = PRODUCT
"""The project that clients without one are in."""

PROJECT_NUMBER = "100000000000"
"""Its number."""


def project_number(project: str) -> str:
    """Returns a project's number; of a number, itself. The same id has the same number everywhere, in every API."""
    if project.isdigit():
        return project
    return PROJECT_NUMBER if project == PROJECT else str(200_000_000_000 + zlib.crc32(project.encode()))


TOKEN = "fake"
"""The access token of clients that show nothing for it. It is good for Cloud Storage, which checks none."""

PRIVATE = f"/_{PACKAGE}"
"""Paths below this are the harness's own. No bucket's name starts with an underscore, so none can be meant."""

UNRECORDED = f"x-{PRODUCT}-unrecorded"
"""A header of the harness's own requests, which meet no fault and are not recorded."""

UNAUTHENTICATED = (
    f"Request had invalid authentication credentials. {PRODUCT} takes only those of its own session: start the client "
    "with this session's variables (GOOGLE_APPLICATION_CREDENTIALS, CLOUDSDK_AUTH_ACCESS_TOKEN_FILE), and give it no "
    "credentials of your own"
)
"""What a client without them is answered."""

_SKEW_SECONDS = 300
_REMEMBERED = 256


def bearer(header: str) -> str:
    """Returns the token of an ``Authorization`` header; empty if it holds none."""
    kind, _, token = header.strip().partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


class Authority:
    """Knows a session's token and the public half of its service account's key.

    Args:
      token: of the session; a random one by default.
      key: the private key of the session's service account, as PEM; None if there is none.

    Attributes:
      token: a secret. It is given only through the session's folder, and to those who have signed for it.
      key: as above; it may be set later.
    """

    def __init__(self, token: str = "", key: bytes | None = None) -> None:
        self.token = token or secrets.token_urlsafe(32)
        self.key = key
        self._lock = threading.Lock()
        self._public: Any = None
        self._until: collections.OrderedDict[str, float] = collections.OrderedDict()

    def admits(self, token: str) -> bool:
        """Returns whether a token is the session's, or one that is signed with the session's key.

        Args:
          token: an access token, or a JSON web token, which Google's libraries send instead of asking for one.
        """
        return hmac.compare_digest(token.encode(), self.token.encode()) or self.has_signed(token)

    def has_signed(self, token: str) -> bool:
        """Returns whether a JSON web token is signed with the session's key, and is good now."""
        with self._lock:
            until = self._until.get(token)
        if until is None:
            until = self._verified_until(token)
            with self._lock:
                self._until[token] = until
                while len(self._until) > _REMEMBERED:
                    self._until.popitem(last=False)
        return time.time() < until

    def _verified_until(self, token: str) -> float:
        """Returns when a web token ends; 0 for one that the session's key did not sign."""
        signed, _, signature = token.rpartition(".")
        head, _, claims = signed.partition(".")
        if self.key is None or not head or not claims:
            return 0.0
        try:
            if json.loads(_decoded(head)).get("alg") != "RS256":
                return 0.0
            said = json.loads(_decoded(claims))
            self._verify(_decoded(signature), signed.encode("ascii"))
            begins, ends = float(said["iat"]), float(said["exp"])
        except (ValueError, KeyError, TypeError, AttributeError):
            return 0.0
        return ends + _SKEW_SECONDS if begins - _SKEW_SECONDS <= time.time() else 0.0

    def _verify(self, signature: bytes, signed: bytes) -> None:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import padding

        assert self.key is not None
        if self._public is None:
            self._public = serialization.load_pem_private_key(self.key, password=None).public_key()
        try:
            self._public.verify(signature, signed, padding.PKCS1v15(), hashes.SHA256())
        except InvalidSignature:
            raise ValueError("another key signed it") from None


def _decoded(part: str) -> bytes:
    try:
        return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
