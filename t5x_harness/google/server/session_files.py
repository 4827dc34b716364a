"""Fills the folder of a server: certificates, credentials, and configurations of clients.

All of it is new for each session and is only in the session's folder, so that none of it is trusted anywhere else or
later.
"""

import datetime
import json
import os
import shlex
import shutil
import ssl
import sys
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from t5x_harness.google.identity import ACCOUNT, PRIVATE, PROJECT
from t5x_harness.google.product import PRODUCT
from t5x_harness.google.server.hosts import SERVED_NAMES
from t5x_harness.google.server.settings import SessionFolder
from t5x_harness.google.tpu import remote_shell

_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
# Some clients refuse certificates that are valid for longer than 825 days. A clock may be wrong by hours.
_BEFORE, _AFTER = datetime.timedelta(days=1), datetime.timedelta(days=365)


def make_certificates() -> tuple[bytes, bytes]:
    """Makes a CA, and one certificate for all served names and for this machine.

    Returns the CA's certificate, whose key is not kept, and the server's key and certificate, as PEM.
    """
    now = datetime.datetime.now(datetime.UTC)
    authority = trustme.CA(
        path_length=0, organization_name=f"{PRODUCT} session CA", organization_unit_name="for one session"
    )
    server = authority.issue_cert(
        *SERVED_NAMES,
        *_LOCAL_NAMES,
        common_name=PRODUCT,
        organization_name=PRODUCT,
        organization_unit_name="session",
        not_before=now - _BEFORE,
        not_after=now + _AFTER,
    )
    return authority.cert_pem.bytes(), server.private_key_and_cert_chain_pem.bytes()


def make_service_key() -> bytes:
    """Makes the key of a service account, as PEM. This takes as long as the rest of the start."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)  # google-auth accepts no other kind
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def service_account(key: bytes, token_uri: str) -> str:
    """Returns the account's JSON file; at ``token_uri`` clients exchange a signed claim for a token."""
    return json.dumps(
        {
            "type": "service_account",
            "project_id": PROJECT,
            "private_key_id": "0" * 40,
            "private_key": key.decode(),
            "client_email": ACCOUNT,
            "client_id": "100000000000000000000",
            "auth_uri": "https://accounts.google.com/o/oauth2/auth",
            "token_uri": token_uri,
            "universe_domain": "googleapis.com",
        },
        indent=2,
    )


def fill_folder(folder: SessionFolder) -> ssl.SSLContext:
    """Writes the certificates and creates the empty folders; returns a context for clients' connections.

    It prefers HTTP/1.1, and accepts ``h2`` from clients that offer nothing else, which only gRPC clients do.
    """
    for empty in (folder.gcloud, folder.gsutil, folder.no_certificates, folder.programs):
        empty.mkdir()
    authority, server = make_certificates()
    folder.authority.write_bytes(authority)
    _write_secret(folder.server, server)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder.server)
    context.set_alpn_protocols(["http/1.1", "h2"])
    # Tickets for resuming sessions cost a fifth of a handshake, and none of the clients uses them.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET
    return context


def write_clients_files(folder: SessionFolder, key: bytes, token: str, *, url: str, proxy: int) -> None:
    """Writes clients' files: credentials, a token, configurations of ``gcloud`` and ``gsutil``, and programs."""
    remote_shell.write_gcloud_configuration(folder.gcloud, PROJECT)
    _write_secret(folder.credentials, service_account(key, f"{url}{PRIVATE}/token").encode())
    _write_secret(folder.token, token.encode())
    # ssh and scp are called by gcloud for workers of TPU VMs.
    for name in ("ssh", "scp", *(["gcloud"] if shutil.which("gcloud") else [])):
        words = [sys.executable, "-I", remote_shell.__file__, name, str(folder.programs), url, str(folder.token)]
        path = folder.programs / name
        path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
        path.chmod(0o755)
    boto: dict[str, dict[str, object]] = {
        "Boto": {
            "ca_certificates_file": folder.authority,
            "proxy": "127.0.0.1",
            "proxy_port": proxy,
            "proxy_rdns": True,
        },
        "Credentials": {"gs_service_key_file": folder.credentials},
        "GSUtil": {
            "state_dir": folder.gsutil,
            "default_project_id": PROJECT,
            "software_update_check_period": 0,
            "check_hashes": "if_fast_else_skip",  # needs a compiled crcmod, which few machines have
        },
    }
    with folder.boto.open("w", encoding="utf-8") as file:
        for section, values in boto.items():
            print(f"[{section}]", *(f"{name} = {value}" for name, value in values.items()), sep="\n", file=file)


def _write_secret(path: Path, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
