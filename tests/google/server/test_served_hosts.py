"""One list decides which names the certificate has, which hosts the proxy accepts, and which must not bypass it."""

from __future__ import annotations

import datetime
import string
from typing import Any

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from t5x_harness.google.server.hosts import SERVED_NAMES, is_served, would_bypass
from t5x_harness.google.server.session_files import make_certificates

GOOGLES = [
    "storage.googleapis.com", "www.googleapis.com", "WWW.GoogleAPIs.com.",
    "us-central1-aiplatform.googleapis.com", "my-bucket.storage.googleapis.com", "accounts.google.com",
    "metadata.google.internal", "169.254.169.254",
]  # fmt: skip
OTHERS = [
    "", "example.org", "google.com", "evilgoogleapis.com", "googleapis.com.example.org",
    "storage.googleapis.com:443", "a.b.c.googleapis.com", ".googleapis.com", "*.googleapis.com", "127.0.0.1",
    "localhost",
]  # fmt: skip


def test_googles_hosts_are_served_and_others_are_not() -> None:
    assert [host for host in (*GOOGLES, *OTHERS) if is_served(host)] == GOOGLES


PAST = (
    "* .googleapis.com googleapis.com *.googleapis.com storage.googleapis.com Storage.GoogleAPIs.com:443 apis.com .com "
    "google.com internal metadata.google.internal 169.254.169.254 169.254.0.0/16 0.0.0.0/0"
).split()
NOT_PAST = ["", "localhost", "10.0.0.0/8", "example.org", ".corp.example", "192.168.1.7:8080", "::1", "googleapis.org"]


def test_what_would_let_a_client_go_past_the_proxy_is_known() -> None:
    assert [entry for entry in (*PAST, *NOT_PAST) if would_bypass(entry)] == PAST


@given(st.text(string.ascii_lowercase + ".-*:/0123456789", max_size=30))
def test_no_entry_that_curl_requests_or_python_match_is_let_through(entry: str) -> None:
    """`requests` compares suffixes without a dot, urllib with one, and curl whole labels. The first is the widest."""
    bare = entry.strip().lstrip(".")
    hosts = [name.replace("*", "abc") for name in SERVED_NAMES]
    if bare and any(host.endswith(bare) for host in hosts):
        assert would_bypass(entry)


@pytest.fixture(scope="module")
def made() -> tuple[bytes, bytes]:
    return make_certificates()


@pytest.fixture(scope="module")
def server(made: tuple[bytes, bytes]) -> Any:
    return x509.load_pem_x509_certificates(made[1])[0]


def test_the_servers_certificate_is_for_every_name_that_is_served_and_this_machine(server: Any) -> None:
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
