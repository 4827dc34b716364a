"""A certificate authority for one session, the server's certificate by it, and the key of a service account.

All of it is made anew for each session and lies in the session's folder only, so that nothing made here is trusted
anywhere else, or after.
"""

from __future__ import annotations

import dataclasses
import datetime
import ipaddress
import json

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from t5x_harness.google.server.hosts import SERVED_NAMES

__all__ = ["Certificates", "make_certificates", "make_service_key", "service_account"]

_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
# Some clients refuse certificates that are valid for longer than 825 days; a clock may be wrong by hours.
_BEFORE, _AFTER = datetime.timedelta(days=1), datetime.timedelta(days=365)


@dataclasses.dataclass(frozen=True)
class Certificates:
    """PEM files.

    Attributes:
      authority: the CA's certificate, which clients are told to trust. Its key is kept nowhere.
      server: the server's key and certificate.
    """

    authority: bytes
    server: bytes


def make_certificates() -> Certificates:
    """Makes a CA and one certificate for all names that are served, and for this machine itself."""
    now = datetime.datetime.now(datetime.UTC)
    authority_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = _name("t5x-harness session CA")
    identifier = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    authority = (
        _builder(issuer, issuer, authority_key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    server = (
        _builder(_name("t5x-harness"), issuer, server_key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([_general(n) for n in (*SERVED_NAMES, *_LOCAL_NAMES)]), critical=False
        )
        .sign(authority_key, hashes.SHA256())
    )
    return Certificates(
        authority.public_bytes(serialization.Encoding.PEM),
        _private_pem(server_key) + server.public_bytes(serialization.Encoding.PEM),
    )


def make_service_key() -> bytes:
    """Makes the key of a service account, as PEM. It takes as long as everything else together."""
    return _private_pem(
        rsa.generate_private_key(public_exponent=65537, key_size=2048)
    )  # google-auth takes no other kind


def service_account(project: str, key: bytes, token_uri: str) -> str:
    """The JSON of a service account, as ``GOOGLE_APPLICATION_CREDENTIALS`` names it.

    Args:
      project: its project.
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


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + _AFTER)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _private_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
