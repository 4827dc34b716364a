"""Plain HTTP to a running server: one request per connection, which may be cut off."""

import contextlib
import http.client
import json
import socket
import struct
from collections.abc import Mapping
from typing import Any

from discovery import faults_of_storage

from t5x_harness.google.session import EmulatedCloud


def ask(
    session: EmulatedCloud, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
) -> tuple[int, Mapping[str, str], bytes]:
    """Sends a request; returns the status, the headers (with names in lower case) and the body of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", session.endpoints.http, timeout=30)
    with contextlib.closing(connection):
        connection.request(method, path, body, dict(headers or {}))
        answer = connection.getresponse()
        told = {name.lower(): value for name, value in answer.getheaders()}
        content = answer.read()
        assert faults_of_storage(method, path, answer.status, told.get("content-type", ""), content) == []
        return answer.status, told, content


def client_of(session: EmulatedCloud, **headers: str) -> Any:
    """Returns Google's client of the server; it sends the headers with each request."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    return storage.Client(
        project="my-project",
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": session.endpoints.url},
        extra_headers=headers,
    )


def make_bucket(session: EmulatedCloud, name: str = "bucket", **fields: Any) -> None:
    status, _, body = ask(session, "POST", "/storage/v1/b?project=p", json.dumps({"name": name, **fields}).encode())
    assert status == 200, body


def related(resource: bytes, media: bytes = b"media", kind: bytes = b"text/plain") -> tuple[bytes, dict[str, str]]:
    """Returns the body and the headers of an upload with a resource."""
    body = b"--x\r\nContent-Type: application/json\r\n\r\n" + resource
    body += b"\r\n--x\r\nContent-Type: " + kind + b"\r\n\r\n" + media + b"\r\n--x--\r\n"
    return body, {"content-type": "multipart/related; boundary=x"}


def path_of(session: EmulatedCloud, address: str) -> str:
    """Returns the path of an address that the server has returned."""
    assert address.startswith(f"{session.endpoints.url}/")
    return address.removeprefix(session.endpoints.url)


def start_resumable(session: EmulatedCloud, name: str, bucket: str = "bucket") -> str:
    path = f"/upload/storage/v1/b/{bucket}/o?uploadType=resumable"
    status, headers, _ = ask(session, "POST", path, json.dumps({"name": name}).encode())
    assert status == 200
    return path_of(session, headers["location"])


def break_off(session: EmulatedCloud, head: str, sent: bytes, *, reset: bool) -> None:
    """Sends a request's head and the beginning of its body, and breaks the connection when the server has them."""
    with socket.create_connection(("127.0.0.1", session.endpoints.http), timeout=30) as connection:
        connection.sendall(f"{head}\r\nHost: 127.0.0.1:{session.endpoints.http}\r\n\r\n".encode() + sent)
        if reset:  # discards the bytes that the other side has not read yet, as a broken network does
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
