"""Texts written for people, and by them.

Messages are shortened: a long list keeps its beginning and a count, and no message exceeds one page.
"""

import re

LONGEST = 3000
"""The most characters in a message, about 30 lines of a terminal."""

_LONG = 800
_LONG_LIST = 400
_ITEMS = 3
_HEAD, _END = 2500, 400
_LIST = re.compile(rf"[\[({{][^\[\](){{}}]{{{_LONG_LIST},}}[\])}}]")


def shorten(text: str) -> str:
    """Returns a message in which each long list in brackets is cut to its first items and the number of the others.

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


def unfit(text: str, *, has_lines: bool = False) -> str:
    """Returns why a value cannot be a name, a path or a number anywhere, in words that follow it; empty if it can.

    Args:
      text: the value.
      has_lines: whether it may have several lines, as a Gin binding.
    """
    if "\0" in text:
        return "has a null character in it"
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        return "is not UTF-8"
    return "has a line break in it" if not has_lines and ("\n" in text or "\r" in text) else ""


_ON, _OFF = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def is_off(text: str) -> bool:
    """Returns whether a text means off, as an empty one does."""
    return not text or text.lower() in _OFF


def is_on(text: str) -> bool:
    """Returns whether a text means on; an empty text means off.

    Raises:
      ValueError: the text means neither.
    """
    if text.lower() in _ON:
        return True
    if is_off(text):
        return False
    raise ValueError(f"must be 1 or 0 (or on, off, true, false, yes, no), not {text!r}")
