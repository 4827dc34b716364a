"""One bucket holds legal names of every kind, through both APIs; a refusal of any other name cites the broken rule."""

import asyncio
from typing import Any
from urllib.parse import quote

import pytest

from t5x_harness.google.storage_http.request import name_in_body

NAMES = [
    "a", "a/", "a/b", "a/b/c", "a//b", "/", "//", "/a", " ", "a b+c%?#&=", "..x/.y", "a/../b", "./a", "a/.",
    "...", "a/o/b", "b/bucket/o/a", "compose", "a/compose", "a/copyTo/b/bucket/o/c", "acl", "a/acl", "%2F",
    "tab\there", "\0", "\x7f", "\\", "'\"<>", "*?[a]{b,c}", "CON", "A", "ü/☃", "u\u0308/☃", "😀", "\ufeff",
    "é" * 512, "x" * 1024, "/".join(["y" * 255] * 4), "z" * 256 + "/a", ".well-known/acme",
]  # fmt: skip


def test_all_of_them_at_once(call: Any) -> None:
    for name in NAMES:
        path = f"/upload/storage/v1/b/bucket/o?uploadType=media&name={quote(name, safe='')}"
        assert call("POST", path, b"json").json["name"] == name
    for name in NAMES:
        if name in (".", "..") or "/./" in f"/{name}/" or "/../" in f"/{name}/":
            quoted = quote(name, safe="")  # for such names, clients of the XML API also quote the slashes
        else:
            quoted = quote(name)
        assert call("GET", f"/bucket/{quoted}").body == b"json", name
        assert call("PUT", f"/bucket/{quoted}", name.encode()).status == 200
    listed = call("GET", "/storage/v1/b/bucket/o").json["items"]
    assert [it["name"] for it in listed] == sorted(NAMES, key=str.encode)
    for name in NAMES:
        path = f"/storage/v1/b/bucket/o/{quote(name, safe='')}"
        assert call("GET", path).json["name"] == name
        assert call("GET", f"{path}?alt=media").body == name.encode()
        assert call("GET", f"/download{path}?alt=media").body == name.encode()
        assert call("DELETE", path).status == 204
        assert call("GET", path).status == 404
    assert "items" not in call("GET", "/storage/v1/b/bucket/o").json


@pytest.mark.parametrize(
    ("pieces", "name"),
    [
        ([b'{"metadata":{"name":"not this"},"name":"this"}'], "this"),
        (
            [b'--b\r\nContent-Type: application/json\r\n\r\n{"metadata":{"name":"no"},"na', b'me":"\\u00fc"}\r\n--b'],
            "ü",
        ),
        ([b'{"metadata":{"name":"not this"}}'], ""),
        ([b'{"name":7}'], ""),
        ([b'{"name":"\\x"}'], ""),
        ([b'{"name":"broken off'], ""),
        ([b'{"a":' * 20000], ""),
        ([b"no resource at all"], ""),
    ],
)
def test_the_name_that_faults_see_is_the_uploads(pieces: list[bytes], name: str) -> None:
    messages = [{"type": "http.request", "body": piece, "more_body": piece is not pieces[-1]} for piece in pieces]
    early: list[Any] = []

    async def receive() -> Any:
        return messages[len(early)]

    assert asyncio.run(name_in_body(receive, early)) == name
    assert early == messages
