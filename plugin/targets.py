"""Where the jobs of promoted items go that take no fixtures: what ``vertex_target`` is in their folder."""

from __future__ import annotations

from typing import Any

import pytest

from t5x_harness.vertex.target import VertexTarget

from ._pytest_internals import fixture_definitions, fixture_value

__all__ = ["TargetsOfConftests", "checked"]

_FIXTURE = "vertex_target"
_SHARED = ("session", "package")


class TargetsOfConftests:
    """The targets that overridden fixtures give to items that are no functions: gin configs and shipped tests."""

    def __init__(self) -> None:
        self._found: dict[Any, VertexTarget] = {}  # of the fixtures whose value holds for more than one item

    def overrides(self, item: pytest.Item) -> bool:
        """Whether a conftest, a module or a class has a fixture of its own for an item."""
        return len(_definitions(item)) > 1

    def known(self, item: pytest.Item) -> bool:
        """Whether :meth:`of` answers before the item is set up, as another item has asked the same fixture."""
        return _definitions(item)[-1] in self._found

    def of(self, item: pytest.Item) -> VertexTarget:
        """The fixture's value for an item that is being set up, or runs.

        Fails the item, without a traceback, if the fixture gives something else, or cannot be asked.
        """
        definition = _definitions(item)[-1]
        if definition in self._found:
            return self._found[definition]
        if definition.scope == "module" and item.getparent(pytest.Module) is None:
            pytest.fail(
                f"the fixture {_FIXTURE} for {item.nodeid} has the scope module, and a gin config is in no module: "
                "give it the scope session or package",
                pytrace=False,
            )
        target = checked(fixture_value(_FIXTURE, item))
        if definition.scope in _SHARED:
            self._found[definition] = target
        return target


def checked(value: Any) -> VertexTarget:
    """What a fixture gave; fails the test, without a traceback, if that is no target."""
    if not isinstance(value, VertexTarget):
        pytest.fail(
            f"the fixture {_FIXTURE} has to return a VertexTarget of t5x_harness.vertex.target, not {value!r}",
            pytrace=False,
        )
    return value


def _definitions(item: pytest.Item) -> Any:
    """The fixtures of that name for an item, the closest last; this plugin's own is the first."""
    return fixture_definitions(_FIXTURE, item)
