"""Google's descriptions of its REST APIs, and what is wrong with an answer by them.

The files in ``tests/reference/discovery`` are Discovery documents without their prose: methods by name, with verb, path
and answer, and the schemas of resources. This writes one of them from a document of google-api-python-client:

python tests/google/discovery.py googleapiclient/discovery_cache/documents/storage.v1.json
"""

import collections
import functools
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "reference" / "discovery"
_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "any": (object,),
}
_FORMS = {
    "int64": r"-?\d+",
    "uint64": r"\d+",
    "date-time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)",
    "google-datetime": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)",
}
_PROSE = ("description", "annotations", "enumDescriptions", "default", "readOnly", "deprecated", "id")


class Description:
    """One API as Google describes it.

    Args:
      name: the name of the file, such as ``storage.v1``.
    """

    def __init__(self, name: str) -> None:
        document = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
        self.methods: Mapping[str, Mapping[str, Any]] = document["methods"]
        self._schemas: Mapping[str, Any] = document["schemas"]
        self._alike = collections.defaultdict[tuple[str, int], list[tuple[str, re.Pattern[str]]]](list)
        for called, method in self.methods.items():
            self._alike[method["verb"], method["path"].count("/")].append((called, _pattern(method["path"])))

    def method_of(self, verb: str, path: str) -> str:
        """Returns the name of the method that a request calls; raises LookupError if there is none."""
        for name, pattern in self._alike[verb, path.count("/")]:
            if pattern.fullmatch(path):
                return name
        raise LookupError(f"Google describes no method for {verb} {path}")

    def faults(self, method: str, answer: Any) -> Iterator[str]:
        """Yields what an answer has that Google's does not: fields, and values of another type or form."""
        response = self.methods[method]["response"]
        if response is None:
            yield f"{method}: it has no answer, not {answer!r}"
        else:
            yield from self._faults(method, answer, {"$ref": response})

    def _faults(self, place: str, value: Any, schema: Mapping[str, Any]) -> Iterator[str]:
        schema = self._schemas[schema["$ref"]] if "$ref" in schema else schema
        kind, form = schema["type"], _FORMS.get(schema.get("format", ""))
        if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind not in ("boolean", "any")):
            yield f"{place}: {value!r} is no {kind}"
        elif kind == "object":
            known = schema.get("properties", {})
            for name, each in value.items():
                of_name = known.get(name) or schema.get("additionalProperties")
                if of_name:
                    yield from self._faults(f"{place}.{name}", each, of_name)
                else:
                    yield f"{place}.{name}: there is no such field"
        elif kind == "array":
            for each in value:
                yield from self._faults(f"{place}[]", each, schema["items"])
        elif form and kind == "string" and not re.fullmatch(form, value):
            yield f"{place}: {value!r} is no {schema['format']}"
        elif "enum" in schema and value not in schema["enum"]:
            yield f"{place}: {value!r} is none of {', '.join(schema['enum'])}"


@functools.cache
def description(name: str) -> Description:
    """Returns the description of an API."""
    return Description(name)


def storage_path(target: str) -> str:
    """Returns the path of the method of Cloud Storage that a request calls, which has others for media."""
    return re.sub("^/(?:upload|resumable/upload|download)(?=/storage/)", "", target.partition("?")[0])


def faults_of_storage(verb: str, target: str, status: int, kind: str, body: bytes) -> list[str]:
    """Returns what an answer of Cloud Storage has that Google's does not.

    Args:
      verb: the method of the request.
      target: its path and query.
      status: the status of the answer; errors are described nowhere, and have no faults here.
      kind: its content type.
      body: its body.
    """
    path, (_, _, query) = storage_path(target), target.partition("?")
    if not path.startswith("/storage/v1/") or status not in range(200, 300) or "json" not in kind or not body:
        return []
    if "alt=media" in query.split("&"):
        return []
    if path != target.partition("?")[0] and "upload_id=" in query:
        verb = "POST"  # as the upload began
    storage = description("storage.v1")
    return list(storage.faults(storage.method_of(verb, path), json.loads(body)))


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\{[^/]*?\\}", "[^/]+", re.escape(path)))


def _condensed(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a Discovery document without prose."""
    methods = {}

    def collect(resource: Mapping[str, Any]) -> None:
        for method in resource.get("methods", {}).values():
            path = f"/{document['servicePath']}{method.get('flatPath') or method['path']}"
            response = method.get("response", {}).get("$ref")
            methods[method["id"]] = {"verb": method["httpMethod"], "path": path, "response": response}
        for each in resource.get("resources", {}).values():
            collect(each)

    collect(document)
    return {"revision": document["revision"], "methods": methods, "schemas": _plain(document["schemas"])}


def _plain(value: Any, *, names: bool = True) -> Any:
    """Returns a part of a document without prose; the keys of some objects are names, which may be those of prose."""
    if not isinstance(value, dict):
        return value
    kept = {key: each for key, each in value.items() if names or key not in _PROSE}
    return {key: _plain(each, names=not names and key == "properties") for key, each in kept.items()}


if __name__ == "__main__":
    source = Path(sys.argv[1])
    condensed = _condensed(json.loads(source.read_text(encoding="utf-8")))
    (FOLDER / source.name).write_text(json.dumps(condensed, indent=0, sort_keys=True) + "\n", encoding="utf-8")
