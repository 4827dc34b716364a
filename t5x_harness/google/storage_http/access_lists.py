"""Access control lists of buckets and objects, which are kept in memory and not enforced."""

import dataclasses
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from t5x_harness.google.asgi import Message
from t5x_harness.google.identity import PROJECT_NUMBER
from t5x_harness.google.storage.errors import Invalid, NoSuchResource
from t5x_harness.google.storage.streams import ObjectReader
from t5x_harness.google.storage.values import Bucket
from t5x_harness.google.storage_http.answers import Answer, json_answer
from t5x_harness.google.storage_http.json_api import NotAllowed
from t5x_harness.google.storage_http.request import StorageRequest
from t5x_harness.google.storage_http.resources import bucket_resource

Entry = Mapping[str, str]
"""Who may do what: an entity and its role."""

_PREDEFINED = {"acl": "predefinedAcl", "defaultObjectAcl": "predefinedDefaultObjectAcl"}
_ROLES = ("OWNER", "WRITER", "READER")
_OWNERS = {"entity": f"project-owners-{PROJECT_NUMBER}", "role": "OWNER"}
_OF_PROJECT = (
    _OWNERS,
    {"entity": f"project-editors-{PROJECT_NUMBER}", "role": "OWNER"},
    {"entity": f"project-viewers-{PROJECT_NUMBER}", "role": "READER"},
)
_LISTS: Mapping[str, tuple[Entry, ...]] = {
    "authenticatedRead": (_OWNERS, {"entity": "allAuthenticatedUsers", "role": "READER"}),
    "bucketOwnerFullControl": (_OWNERS,),
    "bucketOwnerRead": ({**_OWNERS, "role": "READER"},),
    "private": (_OWNERS,),
    "projectPrivate": _OF_PROJECT,
    "publicRead": (_OWNERS, {"entity": "allUsers", "role": "READER"}),
    "publicReadWrite": (_OWNERS, {"entity": "allUsers", "role": "WRITER"}),
}


class AccessLists:
    """The lists of all buckets and objects. A new generation of an object has the list of a new object."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, ...], tuple[Entry, ...]] = {}

    async def around(
        self,
        request: StorageRequest,
        bucket: Bucket | None,
        answer: Callable[[StorageRequest], Awaitable[Answer | ObjectReader]],
    ) -> Answer | ObjectReader:
        """Answers a request for a bucket or an object, which may set its lists, or with ``projection=full`` show them.

        Args:
          bucket: the bucket; None if the request creates it.
          answer: answers the request without its lists.
        """
        given: dict[str, tuple[Entry, ...]] = {}
        if request.method in ("PATCH", "POST", "PUT"):
            resource = await request.json()
            given = {name: _entries_of(resource.pop(name)) for name in _PREDEFINED if name in resource}
            given |= {
                name: _predefined(request.parameters[parameter])
                for name, parameter in _PREDEFINED.items()
                if parameter in request.parameters
            }
            request = dataclasses.replace(request, receive=_receiving(resource))
        is_full = request.parameters.get("projection") == "full"
        if given and bucket:
            _check_has_lists(bucket)
        answered = await answer(request)
        if not (given or is_full) or not isinstance(answered, Answer) or answered.status != 200:
            return answered
        resource = json.loads(answered.body)
        for name, entries in given.items():
            self._kept[_key(resource, name)] = entries
        if is_full:
            names = _PREDEFINED if resource["kind"] == "storage#bucket" else ["acl"]
            resource |= {name: [_shown(resource, name, entry) for entry in self._of(resource, name)] for name in names}
        return json_answer(resource)

    async def answer(
        self, request: StorageRequest, bucket: Bucket, resource: Mapping[str, Any], name: str, entity: str = ""
    ) -> Answer:
        """Answers for a list of a bucket or an object, or for one of its entries.

        Args:
          resource: the bucket or the object as the JSON API shows it.
          name: ``acl`` or ``defaultObjectAcl``.

        Raises:
          Invalid: an entry is malformed, or the bucket has uniform access.
          NoSuchResource: the list has no entry for the entity.
        """
        _check_has_lists(bucket)
        entries = {entry["entity"]: entry for entry in self._of(resource, name)}
        if request.method == "GET" and not entity:
            shown = [_shown(resource, name, entry) for entry in entries.values()]
            return json_answer({"kind": f"{_kind(resource, name)}s", "items": shown})
        if request.method not in (("GET", "PUT", "PATCH", "DELETE") if entity else ("POST",)):
            raise NotAllowed(request)
        if entity and entity not in entries:
            raise NoSuchResource(f"The access control list has no entry for {entity}")
        if request.method == "DELETE":
            del entries[entity]
        elif request.method != "GET":
            (changed,) = _entries_of([{"entity": entity, **await request.json()}])
            entity = changed["entity"]
            entries[entity] = changed
        self._kept[_key(resource, name)] = tuple(entries.values())
        return Answer(204) if request.method == "DELETE" else json_answer(_shown(resource, name, entries[entity]))

    def _of(self, resource: Mapping[str, Any], name: str) -> tuple[Entry, ...]:
        return self._kept.get(_key(resource, name), _OF_PROJECT)


def _key(resource: Mapping[str, Any], name: str) -> tuple[str, ...]:
    return resource["kind"], resource["id"], resource["timeCreated"], name


def _kind(resource: Mapping[str, Any], name: str) -> str:
    of_bucket = resource["kind"] == "storage#bucket" and name == "acl"
    return f"storage#{'bucket' if of_bucket else 'object'}AccessControl"


def _shown(resource: Mapping[str, Any], name: str, entry: Entry) -> dict[str, Any]:
    place = {key: resource[key] for key in ("bucket", "generation") if key in resource} or {"bucket": resource["name"]}
    if "bucket" in resource:
        place["object"] = resource["name"]
    address = f"{resource['selfLink']}/{name}/{entry['entity']}"
    identity = {"id": f"{resource['id']}/{entry['entity']}", "selfLink": address, "etag": resource["etag"]}
    return {"kind": _kind(resource, name), **identity, **place, **entry}


def _check_has_lists(bucket: Bucket) -> None:
    if bucket_resource(bucket, "")["iamConfiguration"].get("uniformBucketLevelAccess", {}).get("enabled"):
        raise Invalid("Cannot use ACL API to update bucket policy when uniform bucket-level access is enabled.")


def _entries_of(given: Any) -> tuple[Entry, ...]:
    """Returns the entries in a request; null stands for the list of a new bucket or object."""
    if given is None:
        return _OF_PROJECT
    entries: list[Any] = given if isinstance(given, list) else [None]
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("entity"), str) or entry.get("role") not in _ROLES:
            raise Invalid(f"An access control list has entries with an entity and a role, one of {', '.join(_ROLES)}")
    return tuple({"entity": entry["entity"], "role": entry["role"]} for entry in entries)


def _predefined(name: str) -> tuple[Entry, ...]:
    if name not in _LISTS:
        raise Invalid(f"There is no predefined access control list {name!r}: one of {', '.join(_LISTS)}")
    return _LISTS[name]


def _receiving(resource: dict[str, Any]) -> Callable[[], Awaitable[Message]]:
    async def receive() -> Message:
        return {"type": "http.request", "body": json.dumps(resource).encode()}

    return receive
