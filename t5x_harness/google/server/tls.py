"""A certificate authority for one session, the server's certificate by it, and the key of a service account.

All of it is made anew for each session and lies in the session's folder only, so that nothing made here is trusted
anywhere else, or after.
"""

from __future__ import annotations

import datetime
import json

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from t5x_harness.google.server.hosts import SERVED_NAMES

_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
# Some clients refuse certificates that are valid for longer than 825 days; a clock may be wrong by hours.
_BEFORE, _AFTER = datetime.timedelta(days=1), datetime.timedelta(days=365)


def make_certificates() -> tuple[bytes, bytes]:
    """Makes a CA and one certificate for all names that are served, and for this machine itself.

    Returns:
      The CA's certificate, which clients are to trust (its key is kept nowhere), and the server's key and certificate,
      as PEM.
    """
    now = datetime.datetime.now(datetime.UTC)
    authority = trustme.CA(
        path_length=0, organization_name="t5x-harness session CA", organization_unit_name="for one session"
    )
    server = authority.issue_cert(
        *SERVED_NAMES,
        *_LOCAL_NAMES,
        common_name="t5x-harness",
        organization_name="t5x-harness",
        organization_unit_name="session",
        not_before=now - _BEFORE,
        not_after=now + _AFTER,
    )
    return authority.cert_pem.bytes(), server.private_key_and_cert_chain_pem.bytes()


def make_service_key() -> bytes:
    """Makes the key of a service account, as PEM. It takes as long as everything else together."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)  # google-auth takes no other kind
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def service_account(project: str, key: bytes, token_uri: str) -> str:
    """The JSON of a service account, as ``GOOGLE_APPLICATION_CREDENTIALS`` names it.

    Args:
      key: as PEM.
      token_uri: where clients turn its signature into a token.
    """
    email = f"t5x-harness@{project}.iam.gserviceaccount.com"
    return json.dumps(
        {
            "type": "service_account",
            "project_id": project,
            "private_key_id": "0" * 40,
            "private_key": key.decode(),
            "client_email": email,
            "client_id": "100000000000000000000",
            "auth_uri": "https://accounts.google.com/o/oauth2/auth",
            "token_uri": token_uri,
            "universe_domain": "googleapis.com",
        },
        indent=2,
    )
