"""Writes the tables of docs/fidelity.md, which compare the embedded T5X with the recorded interface of T5X.

Run it from the root of the repository, with the extra ``t5x`` installed::

    python benchmarks/fidelity.py tests/reference/api.json docs/fidelity.md
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from t5x_harness.runtime.import_hooks import use_runtime

START, END = "<!-- made by benchmarks/fidelity.py -->", "<!-- end -->"


@dataclasses.dataclass(frozen=True)
class Compared:
    """A module of the embedded T5X, compared with T5X's.

    Attributes:
        recorded: the number of public functions and classes that T5X has in this module.
        absent: the names that the embedded module lacks.
        differing: the names with other parameters, defaults or members, as "name: what".
    """

    recorded: int
    absent: Sequence[str]
    differing: Sequence[str]


def compare(module: str, record: Mapping[str, Mapping[str, Any]]) -> Compared:
    """Compares a module of the embedded T5X with its record.

    Args:
        module: the name of the module to import, such as ``t5x.models``.
        record: the record of the module in ``api.json``.
    """
    here = importlib.import_module(module)
    absent = [name for name in record if not hasattr(here, name)]
    differing = [
        f"{name}: {what}"
        for name, recorded in record.items()
        if name not in absent
        for what in _differences(getattr(here, name), recorded)
    ]
    return Compared(len(record), absent, differing)


def _differences(thing: Any, record: Mapping[str, Any]) -> Iterator[str]:
    if record["kind"] == "function":
        yield from _changed("", thing, record["signature"])
        return
    for name, member in record["members"].items():
        if not hasattr(thing, name):
            yield f"no member {name}"
        elif isinstance(member, list):
            yield from _changed(f"{name}: ", getattr(thing, name), member)


def _changed(where: str, function: Any, signature: Sequence[Mapping[str, str]]) -> Iterator[str]:
    here = {entry.name: _default(entry.default) for entry in inspect.signature(function).parameters.values()}
    recorded = {entry["name"]: entry.get("default") for entry in signature}
    if list(here) != list(recorded):
        yield f"{where}takes {', '.join(here)} instead of {', '.join(recorded)}"
    else:
        yield from (
            f"{where}{name} is {here[name]} by default instead of {default}"
            for name, default in recorded.items()
            if here[name] != default
        )


def _default(value: Any) -> str | None:
    """Formats a default as the record does: an object without a useful ``repr`` by its module and name."""
    if value is inspect.Parameter.empty:
        return None
    if " at 0x" not in repr(value):
        return repr(value)
    return f"{getattr(value, '__module__', '?')}.{getattr(value, '__qualname__', type(value).__qualname__)}"


def tables(api: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the Markdown tables: first modules and what differs, then what is absent."""
    absent_here: Any = importlib.import_module("t5x._absent")
    lines = ["| module | functions and classes | absent | different |", "|---|---|---|---|"]
    for module, record in sorted(api.items()):
        found = compare(module, record)
        cells = (str(found.recorded), ", ".join(found.absent) or "-", "; ".join(found.differing) or "-")
        lines.append(f"| `{module}` | {' | '.join(cells)} |")
    lines += ["", "| not here | what there is instead |", "|---|---|"]
    lines += [f"| `{module}` | {instead} |" for module, instead in sorted(absent_here.MODULES.items())]
    for module, names in sorted(absent_here.NAMES.items()):
        for instead in dict.fromkeys(names.values()):
            absent = ", ".join(f"`{name}`" for name in names if names[name] == instead)
            lines.append(f"| {absent} of `{module}` | {instead} |")
    return "\n".join(lines)


def with_tables(page: str, api: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the page with new tables."""
    before, _, rest = page.partition(START)
    return f"{before}{START}\n{tables(api)}\n{END}{rest.partition(END)[2]}"


def main(argv: Sequence[str]) -> None:
    """Writes the tables into the page."""
    api, page = map(Path, argv)
    use_runtime("embedded")
    page.write_text(with_tables(page.read_text(), json.loads(api.read_text())))


if __name__ == "__main__":
    main(sys.argv[1:])
