"""Soft errors of the JSON API are told as Google tells them, and leave everything as it was."""

from __future__ import annotations

from typing import Any

import pytest

OBJECT = "/storage/v1/b/bucket/o/a"
NO_BUCKET = "The specified bucket does not exist."
NO_CONDITION = "At least one of the pre-conditions you specified did not hold"
MADE = "Your previous request to create the named bucket succeeded and you already own it."


@pytest.mark.parametrize(
    ("method", "target", "body", "status", "reason", "message"),
    [
        ("GET", "/storage/v1/b/none-such", b"", 404, "notFound", NO_BUCKET),
        ("GET", "/storage/v1/b/none-such/o", b"", 404, "notFound", NO_BUCKET),
        ("GET", "/storage/v1/b/none-such/o/a", b"", 404, "notFound", NO_BUCKET),
        ("POST", "/upload/storage/v1/b/none-such/o?uploadType=media&name=a", b"x", 404, "notFound", NO_BUCKET),
        ("POST", "/upload/storage/v1/b/none-such/o?uploadType=resumable&name=a", b"", 404, "notFound", NO_BUCKET),
        ("DELETE", "/storage/v1/b/none-such", b"", 404, "notFound", NO_BUCKET),
        ("GET", "/storage/v1/b/bucket/o/none", b"", 404, "notFound", "No such object: bucket/none"),
        ("DELETE", "/storage/v1/b/bucket/o/none", b"", 404, "notFound", "No such object: bucket/none"),
        ("PATCH", "/storage/v1/b/bucket/o/none", b"{}", 404, "notFound", "No such object: bucket/none"),
        ("GET", f"{OBJECT}?generation=7", b"", 404, "notFound", "No such object: bucket/a#7"),
        ("POST", "/storage/v1/b?project=p", b'{"name": "bucket"}', 409, "conflict", MADE),
        ("DELETE", "/storage/v1/b/bucket", b"", 409, "conflict", "The bucket you tried to delete is not empty."),
        ("GET", f"{OBJECT}?ifGenerationMatch=1", b"", 412, "conditionNotMet", None),
        (
            "DELETE",
            f"{OBJECT}?ifMetagenerationMatch=2",
            b"",
            412,
            "conditionNotMet",
            f"{NO_CONDITION}: metageneration 1 is not 2",
        ),
        ("POST", "/upload/storage/v1/b/bucket/o?uploadType=media", b"x", 400, "required", "Required: name"),
        ("POST", "/storage/v1/b?project=p", b"{}", 400, "required", "Required: name"),
        ("POST", "/storage/v1/b?project=p", b"{", 400, "parseError", None),
        ("GET", f"{OBJECT}?ifGenerationMatch=x", b"", 400, "invalid", None),
        (
            "POST",
            "/storage/v1/b?project=p",
            b'{"name": "goog-x"}',
            400,
            "invalid",
            "Invalid bucket name: 'goog-x': it must not begin with 'goog'",
        ),
        *(
            (
                "POST",
                f"/upload/storage/v1/b/bucket/o?uploadType={how}&name=a%0Ab",
                b"",
                400,
                "invalid",
                "Invalid object name: 'a\\nb': it must not contain a carriage return or a line feed",
            )
            for how in ("media", "resumable")
        ),
        (
            "POST",
            "/upload/storage/v1/b/bucket/o?uploadType=new&name=a",
            b"",
            400,
            "invalid",
            "There is no uploadType new",
        ),
        ("PATCH", OBJECT, b'{"metadata": {"k": 1}}', 400, "invalid", "metadata has to be an object of texts"),
        ("POST", OBJECT, b"", 405, "methodNotAllowed", "POST is not allowed for /storage/v1/b/bucket/o/a"),
        ("GET", "/storage/v1/b/bucket/notificationConfigs", b"", 403, "notImplemented", None),
        ("POST", "/storage/v1/b/bucket/notificationConfigs", b"{}", 403, "notImplemented", None),
        (
            "POST",
            "/storage/v1/b?project=p",
            b'{"name": "bucket-of-folders", "hierarchicalNamespace": {"enabled": true}}',
            403,
            "notImplemented",
            "t5x-harness does not emulate buckets with a hierarchical namespace; buckets, objects, listings, uploads, "
            "compose, copy, rewrite and move are",
        ),
        ("GET", f"{OBJECT}/acl", b"", 403, "notImplemented", None),
        ("GET", f"{OBJECT}/moveTo/o/b", b"", 405, "methodNotAllowed", None),
        (
            "POST",
            f"{OBJECT}/moveTo/o/a",
            b"",
            400,
            "invalid",
            "An object is moved to another name, not to its own: 'a'",
        ),
        ("POST", f"{OBJECT}/moveTo/o/b?ifGenerationNotMatch=5", b"", 412, "conditionNotMet", None),
        ("POST", f"{OBJECT}/moveTo/o/b?ifSourceGenerationMatch=5", b"", 412, "conditionNotMet", None),
        ("GET", "/storage/v1/b/bucket/iam/testPermissions", b"", 403, "notImplemented", None),
        ("GET", "/storage/v1/b/gone/iam", b"", 404, "notFound", None),
        ("GET", "/storage/v1/projects/p/hmacKeys", b"", 403, "notImplemented", None),
    ],
)
def test_soft_errors(
    call: Any, method: str, target: str, body: bytes, status: int, reason: str, message: str | None
) -> None:
    before = call("PUT", "/bucket/a", b"x").headers["x-goog-generation"]
    refused = call(method, target, body)
    assert refused.headers["content-type"] == "application/json; charset=UTF-8"
    error = refused.json["error"]
    assert error == {
        "code": status,
        "message": error["message"],
        "errors": [{"message": error["message"], "domain": "global", "reason": reason}],
    }
    assert (refused.status, error["message"]) == (status, message or error["message"])
    assert error["message"]
    if reason == "notImplemented":
        assert error["message"].startswith("t5x-harness does not emulate ")
        assert error["message"].endswith("; buckets, objects, listings, uploads, compose, copy, rewrite and move are")
    assert call("HEAD", "/bucket/a").headers["x-goog-generation"] == before
