"""Retry tests as in Google's testbench of Cloud Storage: faults that the requests with a test's id meet, by method.

The suites of Google's clients create a test at ``/retry_test``, send its id with all requests of one call of a client,
and then check that every instruction was carried out.
"""

import dataclasses
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from t5x_harness.google.asgi import Receive, Scope, Send, StorageApp, header_of
from t5x_harness.google.faults import Fault
from t5x_harness.google.product import PRODUCT
from t5x_harness.google.storage.errors import Invalid, NoSuchResource, StoreError
from t5x_harness.google.storage_http.answers import Answer, error_json, json_answer
from t5x_harness.google.storage_http.exchange import Exchange
from t5x_harness.google.storage_http.request import StorageRequest, is_json_api, meaning_of, parse_query

_PATH = b"/retry_test"
_HEADER = b"x-retry-test-id"
_FEW = 4  # bytes of a body whose connection breaks at once
_K = 1024

_INSTRUCTIONS: Mapping[str, Callable[..., Fault]] = {
    r"return-([45]\d\d)": lambda status: Fault(kind="fail", value=status),
    r"return-([45]\d\d)-after-(\d+)K": lambda status, size: Fault(kind="fail", value=status, bytes=size * _K),
    r"return-reset-connection": lambda: Fault(kind="reset"),
    r"return-broken-stream": lambda: Fault(kind="truncate", value=_FEW),
    r"return-broken-stream-after-(\d+)K": lambda size: Fault(kind="truncate", value=size * _K),
    r"return-broken-stream-final-chunk-after-(\d+)B": lambda size: Fault(kind="truncate", value=size, on="upload"),
    r"stall-for-(\d+)s-after-(\d+)K": lambda seconds, size: Fault(kind="stall", value=seconds, bytes=size * _K),
}
_FORMS = (
    "return-CODE, return-CODE-after-NK, return-reset-connection, return-broken-stream, return-broken-stream-after-NK, "
    "return-broken-stream-final-chunk-after-NB and stall-for-Ns-after-NK"
)
_OF_ACL = "delete get insert list patch update"
_METHODS = frozenset(
    f"storage.{kind}.{verb}"
    for kind, verbs in {
        "buckets": f"{_OF_ACL} getIamPolicy lockRetentionPolicy setIamPolicy testIamPermissions",
        "objects": f"{_OF_ACL} compose copy move restore rewrite",
        "bucket_acl": _OF_ACL,
        "default_object_acl": _OF_ACL,
        "object_acl": _OF_ACL,
        "notifications": "delete get insert list",
        "hmacKey": "create delete get list update",
        "serviceaccount": "get",
    }.items()
    for verb in verbs.split()
)
_VERBS = {"POST": "insert", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OF_BUCKETS = {
    "acl": "bucket_acl",
    "defaultObjectAcl": "default_object_acl",
    "notificationConfigs": "notifications",
    "o": "objects",
}
_ACTIONS = {"compose": "compose", "copyTo": "copy", "rewriteTo": "rewrite", "moveTo": "move", "restore": "restore"}
_BY_OPERATION = {
    "download": "objects.get",
    "get": "objects.get",
    "upload": "objects.insert",
    "copy": "objects.copy",
    "delete": "objects.delete",
    "list": "objects.list",
    "bucket.get": "buckets.get",
}
"""The methods that stand for requests of the XML API."""


@dataclasses.dataclass
class RetryTest:
    """A test, with the instructions that no request has met yet, by method and in their order."""

    id: str
    instructions: dict[str, list[str]]

    @property
    def as_json(self) -> Mapping[str, Any]:
        completed = not any(self.instructions.values())
        return {"id": self.id, "instructions": self.instructions, "transport": "HTTP", "completed": completed}


class RetryTesting:
    """Cloud Storage with the private path ``/retry_test``."""

    def __init__(self, app: StorageApp) -> None:
        self._app = app
        self.close = app.close
        self._tests: dict[str, RetryTest] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_own = is_retry_api(scope)
        test_id = header_of(scope, _HEADER)
        if not is_own and not test_id:
            return await self._app(scope, receive, send)
        try:
            if is_own:
                return await (await self._administer(StorageRequest.of(scope, receive))).send(send)
            test = self._test(test_id)
        except StoreError as error:
            return await error_json(error).send(send)
        instructions = test.instructions.get(method_of(scope), [])
        if not instructions or (fault := fault_for(scope, instructions[0])) is None:
            return await self._app(scope, receive, send)
        exchange = Exchange(scope, receive, send)
        exchange.fault = fault
        # It is gone before the client sees the fault, because the client may ask at once whether it is.
        instruction = instructions.pop(0)
        try:
            await exchange.run(self._app)
        finally:
            if not exchange.injected:
                instructions.insert(0, instruction)

    async def _administer(self, request: StorageRequest) -> Answer:
        match request.method, request.segments:
            case "GET", ("retry_tests",):
                return json_answer({"retry_test": [test.as_json for test in self._tests.values()]})
            case "POST", ("retry_test",):
                test = RetryTest(secrets.token_hex(16), instructions_of(await request.json()))
                self._tests[test.id] = test
                return json_answer(test.as_json)
            case "GET", ("retry_test", test_id):
                return json_answer(self._test(test_id).as_json)
            case "DELETE", ("retry_test", test_id):
                del self._tests[self._test(test_id).id]
                return Answer(200, f"Deleted {test_id}".encode(), {"content-type": "text/plain"})
        raise Invalid(f"{request.method} /{'/'.join(request.segments)} is not a request for retry tests")

    def _test(self, test_id: str) -> RetryTest:
        if test_id not in self._tests:
            raise NoSuchResource(f"There is no retry test {test_id!r}: it was deleted, or another server has it")
        return self._tests[test_id]


def is_retry_api(scope: Scope) -> bool:
    """Tells whether a request is for retry tests, and not for a bucket with that name on one of Google's hosts."""
    path: bytes = scope["raw_path"]
    if not path.startswith(_PATH) or b"googleapis.com" in header_of(scope, b"host").encode():
        return False
    return path in (_PATH, _PATH + b"s") or path.startswith(_PATH + b"/")


def instructions_of(resource: Mapping[str, Any]) -> dict[str, list[str]]:
    """Returns the instructions of a new test by method; raises Invalid if one cannot be carried out."""
    if (transport := resource.get("transport", "HTTP")) != "HTTP":
        raise Invalid(f"{PRODUCT} carries out retry tests over HTTP, and emulates no Cloud Storage over {transport}")
    given = resource.get("instructions")
    if not isinstance(given, dict) or not given or not all(isinstance(each, list) for each in given.values()):
        raise Invalid("instructions has to be an object with a list of instructions for each method")
    if unknown := given.keys() - _METHODS:
        raise Invalid(f"There is no method {min(unknown)} of Cloud Storage for a retry test")
    for instruction in (each for several in given.values() for each in several):
        _fault_of(instruction)
    return given


def _fault_of(instruction: object) -> Fault:
    """Returns the fault of an instruction; raises Invalid for an unknown one."""
    for form, make in _INSTRUCTIONS.items():
        if match := re.fullmatch(form, str(instruction), re.ASCII):
            return make(*map(int, match.groups()))
    raise Invalid(f"{PRODUCT} does not carry out the instruction {instruction!r}; it knows {_FORMS}")


def fault_for(scope: Scope, instruction: str) -> Fault | None:
    """Returns the fault that a request meets by an instruction for its method, or None if it is for another request.

    Sizes count from the beginning of an object, so that a part of a resumable upload meets what is due in that part.
    """
    fault = _fault_of(instruction)
    if fault.on and b"upload_id=" not in scope["query_string"]:
        return None  # for the last part of a resumable upload: other parts have an answer without a body
    first = re.match(r"bytes (\d+)-", header_of(scope, b"content-range"))
    if fault.bytes and first:
        return dataclasses.replace(fault, bytes=max(0, fault.bytes - int(first[1])))
    return fault


def method_of(scope: Scope) -> str:
    """Returns the method that a request calls by its name in the JSON API, or an empty string if it has no name."""
    verb = _VERBS.get(scope["method"], "get")
    if not is_json_api(scope):
        operation = meaning_of(scope, parse_query(scope["query_string"])).operation
        return f"storage.{_BY_OPERATION[operation]}" if operation in _BY_OPERATION else ""
    head, _, path = scope["raw_path"].decode("latin-1").partition("?")[0].partition("storage/v1/")
    match path.split("/"):
        case ["projects", _, "serviceAccount"]:
            return "storage.serviceaccount.get"
        case ["projects", _, "hmacKeys", *item]:
            return f"storage.hmacKey.{_of(verb, item, insert='create')}"
        case ["b", _, "o", *_] if "upload" in head:
            return "storage.objects.insert"
        case ["b", _, "iam"]:
            return f"storage.buckets.{'get' if verb == 'get' else 'set'}IamPolicy"
        case ["b", _, "iam", "testPermissions"]:
            return "storage.buckets.testIamPermissions"
        case ["b", _, "lockRetentionPolicy"]:
            return "storage.buckets.lockRetentionPolicy"
        case ["b", _, "o", _, "acl", *item]:
            return f"storage.object_acl.{_of(verb, item)}"
        case ["b", _, "o", _, action, *_] if action in _ACTIONS and verb == "insert":
            return f"storage.objects.{_ACTIONS[action]}"
        case ["b", _, kind, *item] if kind in _OF_BUCKETS:
            return f"storage.{_OF_BUCKETS[kind]}.{_of(verb, item)}"
        case ["b", *item]:
            return f"storage.buckets.{_of(verb, item)}"
    return ""


def _of(verb: str, item: Sequence[str], *, insert: str = "insert") -> str:
    if verb == "get":
        return "get" if item else "list"
    return insert if verb == "insert" else verb
