"""An ASGI application that returns the request that it got. The server's process imports it."""

import hashlib
import json
import os
from pathlib import Path


class EchoApp:
    def __init__(self, root: Path):
        self._root = root
        (root / "opened").write_text(str(os.getpid()))

    def close(self):
        (self._root / "closed").write_text(str(os.getpid()))

    async def __call__(self, scope, receive, send):
        if scope["path"].startswith("/zeros/"):
            return await zeros(int(scope["path"].removeprefix("/zeros/")), send)
        if scope["path"] in MISTAKES:
            return await MISTAKES[scope["path"]](receive, send)
        digest, size = hashlib.sha256(), 0
        while True:
            message = await receive()
            digest.update(message.get("body", b""))
            size += len(message.get("body", b""))
            if not message.get("more_body"):
                break
        body = json.dumps(
            {
                "method": scope["method"],
                "scheme": scope["scheme"],
                "path": scope["path"],
                "raw_path": scope["raw_path"].decode(),
                "query": scope["query_string"].decode(),
                "headers": [[k.decode(), v.decode()] for k, v in scope["headers"]],
                "size": size,
                "sha256": digest.hexdigest(),
            }
        ).encode()
        headers = [(b"content-length", str(len(body)).encode()), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        return await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


make_app = EchoApp


async def zeros(count, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(count).encode())]})
    while count:
        piece = bytes(min(count, 1 << 20))
        count -= len(piece)
        await send({"type": "http.response.body", "body": piece, "more_body": bool(count)})


async def raises(_receive, _send):
    raise ValueError("a mistake of the application")


async def says_nothing(receive, _send):
    await receive()


async def says_too_little(_receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"abc"})


async def does_not_read(_receive, send):
    await send({"type": "http.response.start", "status": 403, "headers": []})
    await send({"type": "http.response.body", "body": b"no"})


async def does_not_know_how_long(_receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"one", "more_body": True})
    await send({"type": "http.response.body", "body": b"two"})


MISTAKES = {
    "/raises": raises,
    "/says-nothing": says_nothing,
    "/says-too-little": says_too_little,
    "/does-not-read": does_not_read,
    "/does-not-know-how-long": does_not_know_how_long,
}


def refuse(root: Path):
    from t5x_harness.google.storage.errors import InUse

    raise InUse(f"{root} is being served by process 1")
