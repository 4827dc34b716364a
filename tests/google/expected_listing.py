"""What a listing should show, found name by name as Google's documentation describes it."""

from collections.abc import Iterable

from t5x_harness.google.storage.names import compile_glob
from t5x_harness.google.storage.values import ListingQuery


def expected_listing(names: Iterable[str], query: ListingQuery) -> tuple[list[str], list[str]]:
    """Returns the names of the objects and the prefixes on all pages."""
    objects: list[str] = []
    prefixes: list[str] = []
    matches = compile_glob("**" if query.match_glob is None else query.match_glob).matches
    for name in sorted(names, key=str.encode):
        if not name.startswith(query.prefix) or name.encode() < query.start_offset.encode():
            continue
        if query.end_offset is not None and name.encode() >= query.end_offset.encode():
            continue
        at = name.find(query.delimiter, len(query.prefix)) if query.delimiter else -1
        cut = name[: at + len(query.delimiter)]
        if (at < 0 or (query.include_trailing_delimiter and cut == name)) and matches(name):
            objects.append(name)
        if at >= 0 and matches(cut) and cut not in prefixes:
            prefixes.append(cut)
    return objects, prefixes
