"""Private names of pytest and pytest-xdist, which they may change in any release."""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import pytest
from _pytest._code.code import ReprExceptionInfo, ReprFileLocation, ReprTracebackNative
from _pytest.fixtures import TopRequest
from _pytest.junitxml import xml_key
from _pytest.mark.expression import Expression


def failure(text: str, path: str, line: int, summary: str) -> ReprExceptionInfo:
    """Builds an item's ``repr_failure`` from a text, in the only form that survives pytest-xdist."""
    return ReprExceptionInfo(
        reprtraceback=ReprTracebackNative([f"{text}\n"]), reprcrash=ReprFileLocation(path, line, summary)
    )


def skip_at_item(reason: str) -> NoReturn:
    """Skips an item as pytest's own marks do: the skip is shown at the item's line, not at the line that raises it."""
    raise pytest.skip.Exception(reason, _use_item_location=True)


def terminal_columns(reporter: pytest.TerminalReporter) -> int:
    """Returns the width of pytest's terminal."""
    return reporter._tw.fullwidth


def colors(reporter: pytest.TerminalReporter) -> bool:
    """Returns whether pytest colors its output; its public methods can only color whole lines."""
    return reporter._tw.hasmarkup


def write_past_line(reporter: pytest.TerminalReporter, text: str) -> None:
    """Writes to pytest's terminal without changing pytest's idea of the current line."""
    file = reporter._tw._file
    file.write(text)
    file.flush()


def junit_file(config: pytest.Config) -> Any:
    """Returns the writer of ``--junitxml`` that ``record_testsuite_property`` uses; None without that option."""
    return config.stash.get(xml_key, None)


def compiled_expression(text: str) -> Expression | None:
    """Compiles an expression of ``-m``; returns None for an invalid one, which pytest itself reports."""
    try:
        return Expression.compile(text)
    except SyntaxError:
        return None


def temporary_folders(config: pytest.Config) -> pytest.TempPathFactory:
    """Returns the value of the fixture ``tmp_path_factory`` outside a test."""
    return config._tmp_path_factory  # type: ignore[attr-defined]


def fixture_definitions(name: str, item: pytest.Item) -> Sequence[Any]:
    """Returns the fixtures with a name that an item can use, the closest last."""
    return item.session._fixturemanager.getfixturedefs(name, item) or ()


def fixture_value(name: str, item: pytest.Item) -> Any:
    """Returns a fixture's value for an item that is not a function, as pytest does for doctests."""
    item._fixtureinfo = item.session._fixturemanager.getfixtureinfo(  # type: ignore[attr-defined]
        node=item, func=None, cls=None
    )
    return TopRequest(item, _ispytest=True).getfixturevalue(name)  # type: ignore[arg-type]


def scheduling_by(group_of: Callable[[str], str | None]) -> type:
    """Makes a scheduler like that of pytest-xdist's ``--dist load`` that keeps groups of items together and in order.

    Args:
      group_of: returns the name of an item's group for its node id; None for an item without a group.
    """
    from xdist.scheduler import LoadGroupScheduling

    class GroupScheduling(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid) or str(super()._split_scope(nodeid))

    return GroupScheduling
