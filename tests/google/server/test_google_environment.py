"""The variables redirect every client to the session and cannot be bypassed; one list says which hosts are Google's."""

import datetime
import os
import string
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from t5x_harness.commands.shells import export_lines
from t5x_harness.google.environment import google_environment
from t5x_harness.google.server.hosts import SERVED_NAMES, is_served, would_bypass
from t5x_harness.google.server.process import make_certificates
from t5x_harness.google.server.settings import Endpoints

FOLDER = Path("/session folder")
ENDPOINTS = Endpoints(http=1001, tls=1002, proxy=1003, grpc=1004, folder=FOLDER, root=FOLDER / "root", pid=7)
PROXIES = ("https_proxy", "http_proxy", "HTTPS_PROXY", "HTTP_PROXY")
NAMES = [
    "PATH", "HOME", "no_proxy", "NO_PROXY", "https_proxy", "GRPC_PROXY", "all_proxy", "no_grpc_proxy",
    "SSL_CERT_FILE",
]  # fmt: skip
VALUES = st.lists(
    st.sampled_from(
        ["*", "", " ", "example.org", ".googleapis.com", "10.0.0.0/8", "localhost", "169.254.169.254", "x y"]
    )
).map(",".join)


def test_every_client_is_redirected_to_the_session() -> None:
    variables = google_environment(ENDPOINTS, {})
    authority = f"{FOLDER}/ca.pem"
    assert {name: variables[name] for name in PROXIES} == dict.fromkeys(PROXIES, "http://127.0.0.1:1003")
    assert variables["STORAGE_EMULATOR_HOST"] == variables["TENSORSTORE_GCS_HTTP_URL"] == "http://127.0.0.1:1001"
    assert {variables[name] for name in variables if "BUNDLE" in name or name == "SSL_CERT_FILE"} == {authority}
    assert variables["GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"] == variables["CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE"] == authority
    assert variables["no_proxy"].startswith("localhost,127.0.0.1,::1,")
    assert variables["GCE_METADATA_HOST"] == "127.0.0.1:1001"
    assert {"all_proxy", "grpc_proxy", "no_grpc_proxy"}.isdisjoint(variables)


def test_nothing_is_looked_up_in_a_home_folder() -> None:
    variables = google_environment(ENDPOINTS, {"HOME": "/home/me"})
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG", "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE", "BOTO_CONFIG"):
        assert Path(variables[name]).parent == FOLDER
    assert not [value for value in variables.values() if "/home/me" in value]


def test_it_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        google_environment(ENDPOINTS, {})["no_proxy"] = "*"  # type: ignore[index]


@given(st.dictionaries(st.sampled_from(NAMES), VALUES))
def test_any_environment_before_leads_to_the_session_after(base: dict[str, str]) -> None:
    variables = google_environment(ENDPOINTS, base)
    after = {**base, **variables}
    for name in (name.lower() for name in after if name.lower().endswith("_proxy")):
        assert after[name] == after[name.upper()]
        if not name.startswith("no_"):
            assert after[name] == "http://127.0.0.1:1003"
            continue
        entries = after[name].split(",")
        assert not [entry for entry in entries if would_bypass(entry)]
        theirs = ",".join(base.get(key, "") for key in (name, name.upper())).split(",")
        assert {entry.strip() for entry in theirs if entry.strip() and not would_bypass(entry)} <= set(entries)
    assert google_environment(ENDPOINTS, after) == variables  # doing it twice changes nothing
    assert {name: after[name] for name in ("PATH", "HOME") if name in base} == {
        name: base[name] for name in ("PATH", "HOME") if name in base
    }


@given(
    st.dictionaries(
        st.from_regex(r"\A[A-Z_]{1,8}\Z").map("T_".__add__), st.text("ab '\"$`\\\n;&*#é", max_size=12), max_size=4
    )
)
def test_a_shell_reads_the_lines_back(variables: dict[str, str]) -> None:
    script = export_lines(variables) + "env -0"
    done = subprocess.run(["sh", "-c", script], env={"PATH": os.environ["PATH"]}, capture_output=True, check=True)
    seen = dict(entry.partition("=")[::2] for entry in done.stdout.decode().split("\0") if entry.startswith("T_"))
    assert seen == variables


def test_a_variable_of_the_project_would_come_before_what_gcloud_is_told() -> None:
    assert "CLOUDSDK_CORE_PROJECT" not in google_environment(ENDPOINTS, {})
    given = google_environment(ENDPOINTS, {"CLOUDSDK_CORE_PROJECT": "the-real-one"})
    assert given["CLOUDSDK_CORE_PROJECT"] == given["GOOGLE_CLOUD_PROJECT"] == "t5x-harness"


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
