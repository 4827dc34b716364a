"""Soft errors of the JSON API have the same form as Google's, and leave everything unchanged."""

from typing import Any

import pytest

BUCKETS, BUCKET = "/storage/v1/b?project=p", "/storage/v1/b/bucket"
OBJECT, UPLOAD = f"{BUCKET}/o/a", "/upload/storage/v1/b/bucket/o?uploadType"
NO_BUCKET = "The specified bucket does not exist."
NO_CONDITION = "At least one of the pre-conditions you specified did not hold"
EMULATED = "buckets, objects, listings, uploads, compose, copy, rewrite and move are"
STATUS = {
    **{"invalid": 400, "parseError": 400, "required": 400, "notImplemented": 403, "notFound": 404},
    **{"methodNotAllowed": 405, "conflict": 409, "conditionNotMet": 412},
}
BAD_BUCKET = "Invalid bucket name: 'goog-x': it must not begin with 'goog'"
BAD_NAME = "Invalid object name: 'a\\nb': it must not contain a carriage return or a line feed"
OF_FOLDERS = b'{"name": "bucket-of-folders", "hierarchicalNamespace": {"enabled": true}}'
NO_POLICY = "The bucket bucket has no retention policy to lock"
MADE = "Your previous request to create the named bucket succeeded and you already own it."


@pytest.mark.parametrize(
    ("method", "target", "body", "reason", "message"),
    [
        ("GET", "/storage/v1/b/none-such", b"", "notFound", NO_BUCKET),
        ("GET", "/storage/v1/b/none-such/o", b"", "notFound", NO_BUCKET),
        ("GET", "/storage/v1/b/none-such/o/a", b"", "notFound", NO_BUCKET),
        ("POST", "/upload/storage/v1/b/none-such/o?uploadType=media&name=a", b"x", "notFound", NO_BUCKET),
        ("POST", "/upload/storage/v1/b/none-such/o?uploadType=resumable&name=a", b"", "notFound", NO_BUCKET),
        ("DELETE", "/storage/v1/b/none-such", b"", "notFound", NO_BUCKET),
        ("PATCH", "/storage/v1/b/none-such", b"{}", "notFound", NO_BUCKET),
        ("DELETE", "/storage/v1/b/none-such/o/a", b"", "notFound", NO_BUCKET),
        ("GET", "/storage/v1/b/..%2Fbuckets%2Fbucket/o/a", b"", "notFound", NO_BUCKET),
        ("GET", f"{BUCKET}/o/none", b"", "notFound", "No such object: bucket/none"),
        ("DELETE", f"{BUCKET}/o/none", b"", "notFound", "No such object: bucket/none"),
        ("PATCH", f"{BUCKET}/o/none", b"{}", "notFound", "No such object: bucket/none"),
        ("GET", f"{OBJECT}?generation=7", b"", "notFound", "No such object: bucket/a#7"),
        ("GET", f"{OBJECT}?generation=7&alt=media", b"", "notFound", "No such object: bucket/a#7"),
        ("PATCH", f"{OBJECT}?generation=7", b"{}", "notFound", "No such object: bucket/a#7"),
        ("DELETE", f"{OBJECT}?generation=7", b"", "notFound", "No such object: bucket/a#7"),
        ("POST", BUCKETS, b'{"name": "bucket"}', "conflict", MADE),
        ("DELETE", BUCKET, b"", "conflict", "The bucket you tried to delete is not empty."),
        ("GET", f"{OBJECT}?ifGenerationMatch=1", b"", "conditionNotMet", None),
        (
            "DELETE",
            f"{OBJECT}?ifMetagenerationMatch=2",
            b"",
            "conditionNotMet",
            f"{NO_CONDITION}: metageneration 1 is not 2",
        ),
        ("POST", f"{UPLOAD}=media", b"x", "required", "Required: name"),
        ("POST", BUCKETS, b"{}", "required", "Required: name"),
        ("POST", BUCKETS, b"{", "parseError", None),
        ("GET", f"{OBJECT}?ifGenerationMatch=x", b"", "invalid", None),
        ("POST", BUCKETS, b'{"name": "goog-x"}', "invalid", BAD_BUCKET),
        ("POST", f"{UPLOAD}=media&name=a%0Ab", b"", "invalid", BAD_NAME),
        ("POST", f"{UPLOAD}=resumable&name=a%0Ab", b"", "invalid", BAD_NAME),
        ("POST", f"{UPLOAD}=new&name=a", b"", "invalid", "There is no uploadType new"),
        ("PATCH", OBJECT, b'{"metadata": {"k": 1}}', "invalid", "metadata has to be an object of texts"),
        ("POST", OBJECT, b"", "methodNotAllowed", "POST is not allowed for /storage/v1/b/bucket/o/a"),
        (
            "GET",
            f"{BUCKET}/notificationConfigs/1",
            b"",
            "notFound",
            "The bucket bucket has no notification configuration 1",
        ),
        ("POST", f"{BUCKET}/notificationConfigs", b"{}", "required", "Required: topic"),
        ("PUT", f"{BUCKET}/notificationConfigs", b"{}", "methodNotAllowed", None),
        ("POST", f"{BUCKET}/lockRetentionPolicy", b"", "required", "Required parameter: ifMetagenerationMatch"),
        ("POST", f"{BUCKET}/lockRetentionPolicy?ifMetagenerationMatch=1", b"", "invalid", NO_POLICY),
        ("GET", f"{BUCKET}/anywhereCaches", b"", "notImplemented", "caches"),
        ("POST", BUCKETS, OF_FOLDERS, "notImplemented", "buckets with a hierarchical namespace"),
        ("GET", f"{OBJECT}/acl/allUsers", b"", "notFound", "The access control list has no entry for allUsers"),
        ("POST", f"{BUCKET}/acl", b'{"entity": "allUsers"}', "invalid", None),
        ("PATCH", f"{OBJECT}?predefinedAcl=none", b"", "invalid", None),
        ("POST", f"{OBJECT}/restore", b"", "notImplemented", "soft-deleted objects"),
        ("GET", f"{OBJECT}/moveTo/o/b", b"", "methodNotAllowed", None),
        ("POST", f"{OBJECT}/moveTo/o/a", b"", "invalid", "An object is moved to another name, not to its own: 'a'"),
        ("POST", f"{OBJECT}/moveTo/o/b?ifGenerationNotMatch=5", b"", "conditionNotMet", None),
        ("POST", f"{OBJECT}/moveTo/o/b?ifSourceGenerationMatch=5", b"", "conditionNotMet", None),
        ("GET", f"{BUCKET}/iam/roles", b"", "notImplemented", "IAM policies"),
        ("GET", "/storage/v1/b/gone/iam", b"", "notFound", None),
        ("POST", "/storage/v1/projects/p/hmacKeys", b"", "required", "Required: serviceAccountEmail"),
        ("GET", "/storage/v1/projects/p/hmacKeys/k", b"", "notFound", "The project p has no HMAC key k"),
        ("GET", "/storage/v1/projects/p/quota", b"", "notImplemented", "GET /storage/v1/projects/p/quota"),
    ],
)
def test_soft_errors(call: Any, method: str, target: str, body: bytes, reason: str, message: str | None) -> None:
    """The message for a feature that is not emulated also names the emulated ones."""
    before = call("PUT", "/bucket/a", b"x").headers["x-goog-generation"]
    refused = call(method, target, body)
    assert refused.headers["content-type"] == "application/json; charset=UTF-8"
    error = refused.json["error"]
    if reason == "notImplemented":
        message = f"t5x-harness does not emulate {message}; {EMULATED}"
    details = {"message": message or error["message"], "domain": "global", "reason": reason}
    assert error == {"code": STATUS[reason], "message": details["message"], "errors": [details]}
    assert (refused.status, bool(error["message"])) == (STATUS[reason], True)
    assert call("HEAD", "/bucket/a").headers["x-goog-generation"] == before
