"""The certificates of a session: their names and validity, and that the CA's key is not kept."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path
from typing import Any

import pytest

x509 = pytest.importorskip("cryptography.x509", reason="needs the extra google")
pytest.importorskip("trustme", reason="needs the extra google")


@pytest.fixture(scope="module")
def made() -> tuple[bytes, bytes]:
    from t5x_harness.google.server.session_files import make_certificates

    return make_certificates()


@pytest.fixture(scope="module")
def server(made: tuple[bytes, bytes]) -> Any:
    return x509.load_pem_x509_certificates(made[1])[0]


def test_the_servers_certificate_is_for_every_name_that_is_served_and_this_machine(server: Any) -> None:
    from t5x_harness.google.server.hosts import SERVED_NAMES

    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    found = [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]
    assert sorted(found) == sorted([*SERVED_NAMES, "localhost", "127.0.0.1", "::1"])


def test_it_lasts_no_longer_than_clients_take_and_began_yesterday_for_clocks_that_are_slow(server: Any) -> None:
    now = datetime.datetime.now(datetime.UTC)
    assert server.not_valid_before_utc <= now - datetime.timedelta(hours=23)
    lasts = server.not_valid_after_utc - server.not_valid_before_utc
    assert datetime.timedelta(days=300) < lasts < datetime.timedelta(days=398)


def test_the_authority_is_handed_out_without_its_key(made: tuple[bytes, bytes]) -> None:
    authority, server = made
    assert b"PRIVATE KEY" not in authority
    assert server.count(b"BEGIN EC PRIVATE KEY") + server.count(b"BEGIN PRIVATE KEY") == 1
    assert len(x509.load_pem_x509_certificates(server)) == 1


def test_python_trusts_it_by_the_authority_alone(made: tuple[bytes, bytes], tmp_path: Path) -> None:
    (tmp_path / "server.pem").write_bytes(made[1])
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tmp_path / "server.pem")
    asking = ssl.create_default_context(cadata=made[0].decode())
    ends = (ssl.MemoryBIO(), ssl.MemoryBIO())
    client = asking.wrap_bio(*ends, server_hostname="storage.googleapis.com")
    server = serving.wrap_bio(ends[1], ends[0], server_side=True)
    for _ in range(4):
        for end in (client, server):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert client.getpeercert()
