"""Whether ``-m EXPRESSION`` promotes the tests that it selects."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["TPU", "promotes"]

TPU = "tpu"

_Atom = tuple[str, tuple[tuple[str, object], ...]]


class _Undecided(Exception):
    """The expression asks for a mark that is neither taken as there nor as missing yet."""

    def __init__(self, atom: _Atom) -> None:
        super().__init__(atom)
        self.atom = atom


def promotes(evaluate: Callable[[Callable[..., bool]], bool]) -> bool:
    """Whether an expression can be true of a test marked ``tpu`` and of no test without that mark.

    So ``tpu`` and ``tpu and not slow`` promote; ``smoke or tpu`` does not, as it selects what is not meant for a TPU as
    well, and neither does ``not tpu``.

    Args:
      evaluate: the compiled expression: takes what says whether a mark, by its name and keyword arguments, is there.
    """
    return _can_hold(evaluate, {}, tpu=True) and not _can_hold(evaluate, {}, tpu=False)


def _can_hold(evaluate: Callable[[Callable[..., bool]], bool], known: dict[_Atom, bool], *, tpu: bool) -> bool:
    """Whether some set of marks makes the expression true, with or without ``tpu`` and as ``known`` has decided."""

    def is_there(name: str, /, **arguments: object) -> bool:
        atom = (name, tuple(sorted(arguments.items())))
        if name == TPU and not tpu:
            return False
        if atom == (TPU, ()):
            return True
        if atom not in known:
            raise _Undecided(atom)
        return known[atom]

    try:
        return bool(evaluate(is_there))
    except _Undecided as undecided:
        return any(_can_hold(evaluate, {**known, undecided.atom: value}, tpu=tpu) for value in (True, False))
