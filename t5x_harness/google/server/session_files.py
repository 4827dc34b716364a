"""Fills the folder of a server: certificates, credentials, and configurations of clients."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from t5x_harness.google.identity import PRIVATE, PROJECT
from t5x_harness.google.server.folder import SessionFolder
from t5x_harness.google.server.tls import make_certificates, service_account


def fill_folder(folder: SessionFolder) -> ssl.SSLContext:
    """Makes the certificates, and what a server needs to use them.

    Returns:
      A context for connections that clients open. It prefers HTTP/1.1 and takes ``h2`` from a client that offers
      nothing else, which only those of gRPC do.
    """
    for empty in (folder.gcloud, folder.gsutil, folder.no_certificates):
        empty.mkdir()
    authority, server = make_certificates()
    folder.authority.write_bytes(authority)
    _write_secret(folder.server, server)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder.server)
    context.set_alpn_protocols(["http/1.1", "h2"])
    # Tickets to resume sessions with cost a fifth of a handshake, and no client that is met here comes back with one.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET
    return context


def write_clients_files(folder: SessionFolder, key: bytes, token: str, *, url: str, proxy: int) -> None:
    """Writes what clients read: credentials, a token, and the configurations of ``gcloud`` and ``gsutil``.

    Args:
      key: of the service account, as PEM.
      url: of the server's plain HTTP port.
    """
    _write_gcloud_configuration(folder.gcloud)
    _write_secret(folder.credentials, service_account(PROJECT, key, f"{url}{PRIVATE}/token").encode())
    _write_secret(folder.token, token.encode())
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
            "check_hashes": "if_fast_else_skip",  # comparing needs a compiled crcmod, which is seldom there
        },
    }
    with folder.boto.open("w", encoding="utf-8") as file:
        for section, values in boto.items():
            print(f"[{section}]", *(f"{name} = {value}" for name, value in values.items()), sep="\n", file=file)


def _write_gcloud_configuration(folder: Path) -> None:
    """Writes what ``gcloud config set`` changes."""
    configurations = folder / "configurations"
    configurations.mkdir()
    (configurations / "config_default").write_text(f"[core]\nproject = {PROJECT}\n")
    (folder / "active_config").write_text("default")


def _write_secret(path: Path, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
