"""Copies and rewrites of the JSON API; a rewrite takes as many calls as with Google."""

from typing import Any
from urllib.parse import quote

import pytest

OBJECTS = "/storage/v1/b/bucket/o"
TO_OTHER = f"{OBJECTS}/a/rewriteTo/b/other/o/a"
SIZE = 2_500_000
BODY = bytes(range(250)) * 10_000


@pytest.fixture
def buckets(call: Any) -> Any:
    assert call("POST", "/storage/v1/b?project=p", b'{"name": "other", "location": "europe-west4"}').status == 200
    call("POST", "/upload/storage/v1/b/bucket/o?uploadType=media&name=a", BODY, {"content-type": "text/x"})
    return call


def test_a_rewrite_to_another_location_takes_several_calls(buckets: Any) -> None:
    query, told = "maxBytesRewrittenPerCall=1048576", []
    token = ""
    while True:
        answer = buckets("POST", f"{TO_OTHER}?{query}{token}").json
        told.append((answer["totalBytesRewritten"], answer["objectSize"], answer["done"]))
        if answer["done"]:
            break
        assert "resource" not in answer
        assert buckets("GET", "/storage/v1/b/other/o/a").status == 404  # no partial copy is visible
        token = f"&rewriteToken={quote(answer['rewriteToken'])}"
    assert told == [("1048576", str(SIZE), False), ("2097152", str(SIZE), False), (str(SIZE), str(SIZE), True)]
    assert (answer["resource"]["bucket"], answer["resource"]["contentType"]) == ("other", "text/x")
    assert buckets("GET", "/other/a").body == BODY


def test_to_another_storage_class_too(buckets: Any) -> None:
    target = f"{OBJECTS}/a/rewriteTo/b/bucket/o/cold?maxBytesRewrittenPerCall=1048576"
    assert buckets("POST", target, b'{"storageClass": "NEARLINE"}').json["done"] is False


@pytest.mark.parametrize("query", ["", "?maxBytesRewrittenPerCall=1048576"])
def test_within_a_location_one_call_does_it(buckets: Any, query: str) -> None:
    answer = buckets("POST", f"{OBJECTS}/a/rewriteTo/b/bucket/o/b{query}").json
    assert (answer["done"], answer["resource"]["name"], answer["resource"]["md5Hash"]) == (
        True,
        "b",
        buckets("GET", f"{OBJECTS}/a").json["md5Hash"],
    )


def test_a_token_is_of_one_rewrite(buckets: Any) -> None:
    token = quote(buckets("POST", f"{TO_OTHER}?maxBytesRewrittenPerCall=1048576").json["rewriteToken"])
    message = "The rewrite token is not of this rewrite: source, destination and maxBytesRewrittenPerCall stay"
    for target in (
        f"{TO_OTHER}?maxBytesRewrittenPerCall=2097152&rewriteToken={token}",
        f"{TO_OTHER}2?maxBytesRewrittenPerCall=1048576&rewriteToken={token}",
        f"{TO_OTHER}?maxBytesRewrittenPerCall=1048576&rewriteToken=nonsense",
        f"{TO_OTHER}?maxBytesRewrittenPerCall=1048576&rewriteToken=e30",
    ):
        refused = buckets("POST", target)
        assert (refused.status, refused.json["error"]["message"]) == (400, message)
    buckets("POST", "/upload/storage/v1/b/bucket/o?uploadType=media&name=a", BODY)  # makes another generation
    assert buckets("POST", f"{TO_OTHER}?maxBytesRewrittenPerCall=1048576&rewriteToken={token}").status == 400


@pytest.mark.parametrize("most", ["1", "1048577", "0", "-1048576"])
def test_bytes_per_call_are_whole_mebibytes(buckets: Any, most: str) -> None:
    refused = buckets("POST", f"{TO_OTHER}?maxBytesRewrittenPerCall={most}").json["error"]
    assert refused["message"] == f"maxBytesRewrittenPerCall has to be a multiple of 1048576, not {most}"


@pytest.mark.parametrize("how", ["copyTo", "rewriteTo"])
def test_conditions_on_both_ends(buckets: Any, how: str) -> None:
    generation = buckets("GET", f"{OBJECTS}/a").json["generation"]
    target = f"{OBJECTS}/a/{how}/b/bucket/o/b"
    for query, status in (
        ("ifSourceGenerationMatch=1", 412),
        ("sourceGeneration=1", 404),
        (f"ifSourceGenerationMatch={generation}&ifGenerationMatch=0", 200),
        ("ifGenerationMatch=0", 412),
        ("ifSourceMetagenerationNotMatch=1", 412),
    ):
        assert buckets("POST", f"{target}?{query}").status == status, query
    assert buckets("POST", f"{OBJECTS}/none/{how}/b/bucket/o/b").status == 404
    assert buckets("POST", f"{OBJECTS}/a/{how}/b/none-such/o/b").status == 404


def test_a_copy_with_a_resource_has_its_fields_alone(buckets: Any) -> None:
    copied = buckets("POST", f"{OBJECTS}/a/copyTo/b/other/o/b", b'{"metadata": {"k": "v"}}').json
    assert (copied["metadata"], copied["size"], copied["contentType"]) == (
        {"k": "v"},
        str(SIZE),
        "application/octet-stream",
    )
