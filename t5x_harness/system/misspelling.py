"""The name that a misspelled word means: the closest one, or, more strictly, the only possible one."""

from collections.abc import Iterable

_SHORTEST = 3  # shorter words are different names, such as LR_A and LR_B


def closest(word: str, choices: Iterable[str]) -> str | None:
    """Returns the choice that ``word`` most likely misspells, or None if none is close."""
    pool = [c for c in choices if c != word]
    if (same := {_folded(c): c for c in pool}.get(_folded(word))) is not None:
        return same
    import difflib  # most runs have no misspelled word

    return next(iter(difflib.get_close_matches(word, pool, n=1, cutoff=0.75)), None)


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Returns ``; did you mean X?``, or an empty string if no choice is close."""
    choices = tuple(choices)
    near = closest(word, choices) or meant(word, choices)
    return f"; did you mean {near}?" if near else ""


def meant(word: str, choices: Iterable[str]) -> str | None:
    """Returns the only choice that ``word`` can be a slip for, or None if there is not exactly one.

    A slip is a difference only in case and underscores, or one letter that is extra, missing, wrong or swapped with the
    next in one word of the name. Digits are never slips.

    Args:
      word: the name as written.
      choices: the valid names.
    """
    pool = {choice for choice in choices if choice != word}
    same = [choice for choice in pool if _folded(choice) == _folded(word)]
    if same:
        return same[0] if len(same) == 1 else None
    near = [choice for choice in pool if _is_slip(word, choice)]
    return near[0] if len(near) == 1 else None


def _folded(word: str) -> str:
    return word.replace("_", "").lower()


def _is_slip(word: str, choice: str) -> bool:
    ours, theirs = word.split("_"), choice.split("_")
    if len(ours) != len(theirs):
        return False
    different = [(a, b) for a, b in zip(ours, theirs, strict=True) if a != b]
    if len(different) != 1:
        return False
    one, other = different[0]
    digits = [[c for c in part if c.isdigit()] for part in (one, other)]
    return min(len(one), len(other)) >= _SHORTEST and digits[0] == digits[1] and _one_letter_apart(one, other)


def _one_letter_apart(one: str, other: str) -> bool:
    """Returns whether one insertion, deletion, replacement or swap of neighbors turns one word into the other."""
    if len(one) > len(other):
        one, other = other, one
    start = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
    if len(one) < len(other):
        return one[start:] == other[start + 1 :]
    swapped = one[start : start + 2] == other[start : start + 2][::-1]
    return one[start + 1 :] == other[start + 1 :] or (swapped and one[start + 2 :] == other[start + 2 :])
