"""Jobs can be started with the session's token, or with a token that the session's key has signed."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding
from google.auth import jwt

from t5x_harness.google.identity import Authority, bearer
from t5x_harness.google.server.session_files import make_service_key


@pytest.fixture(scope="module")
def key() -> bytes:
    return make_service_key()


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _signed(key: bytes, header: Any = None, **claims: Any) -> str:
    now = time.time()
    told = {"iss": "t5x-harness", "iat": now, "exp": now + 3600, **claims}
    parts = [_encoded(json.dumps(part).encode()) for part in (header or {"alg": "RS256", "typ": "JWT"}, told)]
    private: Any = serialization.load_pem_private_key(key, password=None)
    signature = private.sign(".".join(parts).encode(), padding.PKCS1v15(), hashes.SHA256())
    return ".".join([*parts, _encoded(signature)])


def test_the_sessions_token_is_random_and_admits() -> None:
    one, other = Authority(), Authority()
    assert one.token != other.token
    assert len(one.token) >= 32
    assert one.admits(one.token)
    assert not one.admits(other.token)


def test_what_the_sessions_key_signed_admits_and_is_verified_once(key: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(key=key)
    verified: list[int] = []
    decode = jwt.decode
    monkeypatch.setattr(jwt, "decode", lambda *given, **options: verified.append(1) or decode(*given, **options))
    token = _signed(key)
    assert [authority.admits(token) for _ in range(3)] == [True] * 3
    assert len(verified) == 1


def test_what_another_key_signed_does_not(key: bytes) -> None:
    authority = Authority(key=key)
    head, claims, signature = _signed(key).split(".")
    changed = _encoded(json.dumps({"iat": 0, "exp": time.time() + 9999}).encode())
    other = _signed(make_service_key())
    for token in (other, f"{head}.{changed}.{signature}", f"{head}.{claims}.", f"{head}.{claims}"):
        assert not authority.admits(token)


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": time.time() - 3600},
        {"iat": time.time() + 3600},
        {"exp": "soon"},
        {"exp": None},
    ],
)
def test_it_has_to_be_good_now(key: bytes, claims: dict[str, Any]) -> None:
    assert not Authority(key=key).admits(_signed(key, **claims))


@pytest.mark.parametrize("header", [{"alg": "none"}, {"alg": "HS256"}, {}, ["RS256"], "RS256"])
def test_other_algorithms_are_not_taken(key: bytes, header: Any) -> None:
    assert not Authority(key=key).admits(_signed(key, header or {"typ": "JWT"}))


@pytest.mark.parametrize("token", ["", ".", "..", "a.b.c", "é.é.é", "fake", "\0", "e30.e30.e30", "W10.W10.W10"])
def test_what_is_no_token(key: bytes, token: str) -> None:
    assert not Authority(key=key).admits(token)
    assert not Authority().admits(token)


@pytest.mark.parametrize(
    ("header", "token"),
    [("Bearer abc", "abc"), ("bearer  abc ", "abc"), ("Basic abc", ""), ("Bearer", ""), ("", ""), ("abc", "")],
)
def test_tokens_in_headers(header: str, token: str) -> None:
    assert bearer(header) == token
