"""Shortens messages for people: a long list keeps its beginning and a count, and no message exceeds a page."""

from __future__ import annotations

import re

LONGEST = 3000
"""The most characters of a message, about 30 lines of a terminal."""

_LONG = 800
_LONG_LIST = 400
_ITEMS = 3
_HEAD, _END = 2500, 400
_LIST = re.compile(rf"[\[({{][^\[\](){{}}]{{{_LONG_LIST},}}[\])}}]")


def shorten(text: str) -> str:
    """Returns a message in which each long list in brackets has its first items and the number of the others.

    A message that is still longer than :data:`LONGEST` loses its middle. A message of moderate length is unchanged.
    """
    if len(text) <= _LONG:
        return text
    text = _LIST.sub(_shorter_list, text)
    if len(text) <= LONGEST:
        return text
    head, end = text[:_HEAD].rpartition(" ")[0] or text[:_HEAD], text[-_END:].partition(" ")[2] or text[-_END:]
    return f"{head} … {len(text) - len(head) - len(end)} characters left out … {end}"


def _shorter_list(match: re.Match[str]) -> str:
    whole = match[0]
    items = whole[1:-1].split(", ")
    if len(items) <= _ITEMS + 1:
        return whole
    return f"{whole[0]}{', '.join(items[:_ITEMS])} and {len(items) - _ITEMS} more{whole[-1]}"
