"""What pytest keeps to itself: names that it may change in any release, used here alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from _pytest._code.code import ReprExceptionInfo, ReprFileLocation, ReprTracebackNative
from _pytest.junitxml import xml_key

if TYPE_CHECKING:
    from _pytest.mark.expression import Expression


def failure(text: str, path: str, line: int, summary: str) -> ReprExceptionInfo:
    """Builds what an item's ``repr_failure`` returns for a text of its own: the one kind that survives pytest-xdist."""
    return ReprExceptionInfo(
        reprtraceback=ReprTracebackNative([f"{text}\n"]), reprcrash=ReprFileLocation(path, line, summary)
    )


def skip_at_item(reason: str) -> NoReturn:
    """Skips an item as pytest's own marks do: the skip belongs to the item's line, not to the one that raises it."""
    raise pytest.skip.Exception(reason, _use_item_location=True)


def terminal_columns(reporter: pytest.TerminalReporter) -> int:
    """Returns the columns of pytest's terminal."""
    return reporter._tw.fullwidth


def colors(reporter: pytest.TerminalReporter) -> bool:
    """Returns whether pytest colors what it prints; its public methods color nothing but whole lines."""
    return reporter._tw.hasmarkup


def write_past_line(reporter: pytest.TerminalReporter, text: str) -> None:
    """Writes to pytest's terminal without its knowing, so that it goes on in the line where it was."""
    file = reporter._tw._file
    file.write(text)
    file.flush()


def junit_file(config: pytest.Config) -> Any:
    """Returns what writes ``--junitxml``, as the fixture ``record_testsuite_property`` does; None without it."""
    return config.stash.get(xml_key, None)


def compiled_expression(text: str) -> Expression | None:
    """Compiles an expression of ``-m``; None for one with a mistake in it, which pytest reports when it selects."""
    from _pytest.mark.expression import Expression

    try:
        return Expression.compile(text)
    except SyntaxError:
        return None


def temporary_folders(config: pytest.Config) -> pytest.TempPathFactory:
    """Returns what the fixture ``tmp_path_factory`` gives, outside a test."""
    factory: pytest.TempPathFactory = config._tmp_path_factory  # type: ignore[attr-defined]
    return factory


def fixture_definitions(name: str, item: pytest.Item) -> Sequence[Any]:
    """Returns the fixtures of a name that an item may use, the closest last."""
    return item.session._fixturemanager.getfixturedefs(name, item) or ()


def fixture_value(name: str, item: pytest.Item) -> Any:
    """Returns a fixture's value for an item that is not a function, as pytest's own items for doctests get theirs."""
    from _pytest.fixtures import TopRequest

    item._fixtureinfo = item.session._fixturemanager.getfixtureinfo(  # type: ignore[attr-defined]
        node=item, func=None, cls=None
    )
    return TopRequest(item, _ispytest=True).getfixturevalue(name)  # type: ignore[arg-type]
