"""Fixtures with a metadata store, and short ways to fill it."""

from collections.abc import Callable
from typing import Any

import pytest
from api_calls import STORE, Call


@pytest.fixture
def create(call: Call) -> Call:
    """Returns ``create("Artifact", "name", schema_title="…")``, which creates a node in the default store."""

    def make(noun: str, identifier: str, **fields: Any) -> Any:
        field = noun.lower()
        request = {"parent": STORE, f"{field}_id": identifier, field: fields}
        return call(f"MetadataService.Create{noun}", **request)

    return make


@pytest.fixture
def names(call: Call) -> Callable[..., list[str]]:
    """Returns ``names("Artifact", 'uri = "x"')``, which returns the ids of the nodes that match a filter."""

    def find(noun: str, text: str = "", **more: Any) -> list[str]:
        page = call(f"MetadataService.List{noun}s", parent=STORE, filter=text, **more)
        return [node.name.rpartition("/")[2] for node in getattr(page, f"{noun.lower()}s")]

    return find
