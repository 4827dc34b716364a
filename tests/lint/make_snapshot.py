"""Writes the snapshots: the names and parameters that the lint rules know without importing anything.

Run it from the root of the repository when ``tests/reference/api.json`` is recorded again; if the extra ``t5x`` is
installed, also when that extra asks for another version of a library::

    python tests/lint/make_snapshot.py tests/reference/api.json
    python tests/lint/make_snapshot.py seqio optax
"""

import ast
import enum
import importlib
import importlib.metadata
import inspect
import json
import math
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from t5x_harness.gin import snapshot
from t5x_harness.gin.snapshot import LIBRARIES

_FOLDER = Path(snapshot.__file__).parent


def snapshot_text(api: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """Returns the text of the snapshot: one line per module, so that differences are readable.

    Args:
      api: module, then symbol, then its record (``kind``, ``signature`` of a function, ``members`` of a class).
    """
    lines = []
    for module, symbols in sorted(api.items()):
        entries = {name: _entry(record) for name, record in sorted(symbols.items())}
        lines.append(f"{json.dumps(module)}: {json.dumps(entries, separators=(',', ':'))}")
    return '{"modules": {\n' + ",\n".join(lines) + "\n}}\n"


def _entry(record: Mapping[str, Any]) -> dict[str, Any]:
    if record["kind"] == "function":
        return {"call": _signature(record["signature"])}
    entry: dict[str, Any] = {"class": True}
    members = record["members"]
    if "__init__" in members:
        entry["call"] = _signature(members["__init__"])
    methods = {
        name: _signature(signature)
        for name, signature in sorted(members.items())
        if name != "__init__" and isinstance(signature, list)  # a property is recorded as a word
    }
    if methods:
        entry["methods"] = methods
    return entry


def _signature(parameters: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    named = [p for p in parameters if not p["kind"].startswith("VAR_") and p["name"] not in ("self", "cls")]
    defaults = {p["name"]: _literal(p["default"]) for p in named if "default" in p}
    return _described([p["name"] for p in named], defaults, any(p["kind"] == "VAR_KEYWORD" for p in parameters))


def _described(names: Sequence[str], defaults: Mapping[str, Any], takes_any: bool) -> dict[str, Any]:
    signature: dict[str, Any] = {
        "required": [name for name in names if name not in defaults],
        "optional": [name for name in names if name in defaults],
        "defaults": {name: defaults[name] for name in names if name in defaults and _is_plain(defaults[name])},
        "any": takes_any,
    }
    return {key: value for key, value in signature.items() if value}


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return None


def _is_plain(value: object) -> bool:
    """Returns whether a default is of a type that JSON has, with tuples as lists, and is not None."""
    if isinstance(value, (tuple, list)):
        return all(item is None or _is_plain(item) for item in value)
    return isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value))


def interface_text(package: str) -> str:
    """Returns the text of the snapshot of an installed library: the names that Gin would find in its public modules.

    A name that several modules have is recorded in the first of them, in the package itself if it has the name; the
    others refer to it. Names that are neither functions nor classes of the library are only listed.
    """
    places: dict[int, str] = {}
    lines, other = [], []
    for module in _public_modules(package):
        entries, rest = {}, []
        for name, value in sorted(vars(module).items()):
            if name.startswith("_"):
                continue
            if not _is_own(value, package):
                rest.append(name)
            elif (place := places.setdefault(id(value), f"{module.__name__}.{name}")) != f"{module.__name__}.{name}":
                entries[name] = {"is": place}
            else:
                entries[name] = _live_entry(value)
        lines.append(f"{json.dumps(module.__name__)}: {json.dumps(entries, separators=(',', ':'))}")
        other.append(f"{json.dumps(module.__name__)}: {json.dumps(rest, separators=(',', ':'))}")
    version = json.dumps(importlib.metadata.version(package))
    body = ",\n".join(lines)
    return f'{{"version": {version},\n"modules": {{\n{body}\n}},\n"other": {{\n' + ",\n".join(other) + "\n}}\n"


def _public_modules(package: str) -> Iterator[ModuleType]:
    """Yields the package and its public modules."""
    top = importlib.import_module(package)
    yield top
    for found in pkgutil.iter_modules(top.__path__):
        if not found.name.startswith("_") and not found.name.endswith("test") and found.name in vars(top):
            yield importlib.import_module(f"{package}.{found.name}")


def _is_own(value: Any, package: str) -> bool:
    return (inspect.isroutine(value) or inspect.isclass(value)) and (
        (getattr(value, "__module__", None) or "").split(".")[0] == package
    )


def _live_entry(value: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    function = value
    if inspect.isclass(value):
        entry["class"] = True
        function = next((vars(b)[n] for b in value.__mro__ for n in ("__init__", "__new__") if n in vars(b)), None)
        methods = inspect.getmembers(value, callable)
        if found := {name: _live_signature(method) for name, method in methods if not name.startswith("_")}:
            entry["methods"] = found
        if issubclass(value, enum.Enum) or function in (object.__init__, object.__new__):
            return entry
    signature = _live_signature(function)
    return entry if signature is None else entry | {"call": signature}


def _live_signature(function: Any) -> dict[str, Any] | None:
    """Returns the signature of a callable; None if Python does not know it."""
    function = getattr(function, "__func__", function)
    while hasattr(function, "__wrapped__"):  # as Gin does
        function = function.__wrapped__
    try:
        found = inspect.getfullargspec(function)
    except TypeError:
        return None
    names = [name for name in (*found.args, *found.kwonlyargs) if name not in ("self", "cls", "_cls")]
    values = found.defaults or ()
    defaults = {
        **dict(zip(found.args[len(found.args) - len(values) :], values, strict=True)),
        **(found.kwonlydefaults or {}),
    }
    return _described(names, defaults, found.varkw is not None)


def main(arguments: Sequence[str]) -> int:
    """Reads the record, or imports the libraries, that the command line names, and writes their snapshots."""
    if not arguments or any(not a.endswith(".json") and a not in LIBRARIES for a in arguments):
        print(f"usage: python tests/lint/make_snapshot.py API_JSON | {' | '.join(LIBRARIES)} ...", file=sys.stderr)
        return 2
    for argument in arguments:
        if argument in LIBRARIES:
            _FOLDER.joinpath(f"{argument}_api.json").write_text(interface_text(argument), encoding="utf-8")
        else:
            api = json.loads(Path(argument).read_text(encoding="utf-8"))
            _FOLDER.joinpath("t5x_api.json").write_text(snapshot_text(api), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
