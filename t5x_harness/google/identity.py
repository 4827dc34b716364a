"""The clients that may access more than objects: those that have the session's token or sign with the session's key."""

import functools
import hmac
import secrets
import time
import zlib

from t5x_harness.google.product import PACKAGE, PRODUCT

PROJECT = PRODUCT
"""The project of clients that do not have a project."""

PROJECT_NUMBER = "100000000000"
"""The number of that project."""

ACCOUNT = f"{PRODUCT}@{PROJECT}.iam.gserviceaccount.com"
"""The service account of every client of a session."""


def project_number(project: str) -> str:
    """Returns a project's number, the same in every API. A number is returned unchanged."""
    if project.isdigit():
        return project
    return PROJECT_NUMBER if project == PROJECT else str(200_000_000_000 + zlib.crc32(project.encode()))


TOKEN = "fake"
"""The access token of clients that prove nothing. It works for Cloud Storage, which checks no token."""

PRIVATE = f"/_{PACKAGE}"
"""The prefix of the harness's own paths. No bucket's name starts with an underscore, so the prefix hides no bucket."""

UNRECORDED = f"x-{PRODUCT}-unrecorded"
"""A header of the harness's own requests, which hit no fault and are not recorded."""

UNAUTHENTICATED = (
    f"Request had invalid authentication credentials. {PRODUCT} takes only those of its own session: start the client "
    "with this session's variables (GOOGLE_APPLICATION_CREDENTIALS, CLOUDSDK_AUTH_ACCESS_TOKEN_FILE), and give it no "
    "credentials of your own"
)
"""The answer to a client without the session's credentials."""

_SKEW_SECONDS = 300
_MOST_REMEMBERED = 256


def bearer(header: str) -> str:
    """Returns the token in an ``Authorization`` header, or an empty string."""
    kind, _, token = header.strip().partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


class Authority:
    """Holds a session's token and the key of its service account.

    Args:
      token: the session's token; a random one by default.
      key: the private key of the session's service account, as PEM; None if there is none.

    Attributes:
      token: the token, a secret. Clients get it from the session's folder, or by signing a request for it.
      key: the private key; it may be set later.
    """

    def __init__(self, token: str = "", key: bytes | None = None) -> None:
        self.token = token or secrets.token_urlsafe(32)
        self.key = key
        self._valid_until = functools.lru_cache(_MOST_REMEMBERED)(self._verify)

    def admits(self, token: str) -> bool:
        """Returns whether a token is the session's, or is signed with the session's key.

        Args:
          token: an access token, or a JSON web token, which Google's libraries send instead of asking for one.
        """
        return hmac.compare_digest(token.encode(), self.token.encode()) or self.has_signed(token)

    def has_signed(self, token: str) -> bool:
        """Returns whether a JSON web token is signed with the session's key and valid now."""
        return self.key is not None and token.count(".") == 2 and time.time() < self._valid_until(token)

    def has_signed_bytes(self, message: bytes, signature: bytes) -> bool:
        """Returns whether a signature of some bytes, by RSA with SHA-256, was made with the session's key."""
        from google.auth import crypt

        return self.key is not None and crypt.verify_signature(message, signature, self._public_key())

    def _public_key(self) -> bytes:
        from cryptography.hazmat.primitives import serialization

        pem = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        return serialization.load_pem_private_key(self.key or b"", password=None).public_key().public_bytes(*pem)

    def _verify(self, token: str) -> float:
        """Returns the time when a web token expires; 0 if the session's key did not sign it."""
        from google.auth import jwt

        try:
            public = self._public_key()
            claims = jwt.decode(token, public, clock_skew_in_seconds=_SKEW_SECONDS)
            return float(claims["exp"]) + _SKEW_SECONDS
        except (ValueError, TypeError, AttributeError):
            return 0.0
