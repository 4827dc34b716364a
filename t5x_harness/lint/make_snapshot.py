"""Writes ``t5x_api.json``, the names and parameters that the lint rules know, from the recorded interface of T5X.

Run it from the root of the repository when ``tests/reference/api.json`` is recorded anew::

    python -m t5x_harness.lint.make_snapshot tests/reference/api.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["main", "snapshot_text"]

_TARGET = Path(__file__).with_name("t5x_api.json")


def snapshot_text(api: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """The text of the snapshot: one line a module, so that a difference can be read.

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
    signature: dict[str, Any] = {
        "required": [p["name"] for p in named if "default" not in p],
        "optional": [p["name"] for p in named if "default" in p],
    }
    if any(p["kind"] == "VAR_KEYWORD" for p in parameters):
        signature["any"] = True
    return {key: value for key, value in signature.items() if value}


def main(arguments: Sequence[str]) -> int:
    """Reads the record named on the command line and writes the snapshot."""
    if len(arguments) != 1:
        print("usage: python -m t5x_harness.lint.make_snapshot API_JSON", file=sys.stderr)
        return 2
    api = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    _TARGET.write_text(snapshot_text(api), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
