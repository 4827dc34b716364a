"""The markers, and what ``-m EXPRESSION`` requests with them: runs of configs, or jobs for the selected tests."""

from __future__ import annotations

from collections.abc import Callable

from t5x_harness.promotion.resources import SIGNATURE

SMOKE, AOT, TPU = "smoke", "aot", "tpu"

MARKERS = (
    "smoke: runs T5X here, on CPU devices laid out like a TPU slice; fails if it exercised nothing",
    f"{AOT}: compiles a config's programs at full size with the TPU's own compiler, for the slice; an item of each "
    "config under -m aot, or where --t5x-aot names a mode",
    "slice(name='v3-8'): the TPU slice, by name or topology such as v3:4x4, that t5x_run emulates in this test",
    "network(): lets this test and its runs reach beyond this machine; smoke tests and runs without it reach loopback "
    "only, unless --t5x-network=allow",
    f"{TPU}({SIGNATURE}): under -m tpu, and any other -m that selects it because of this mark alone, the test is "
    "promoted to a job on Vertex AI with these resources; it means nothing else",
)
"""The markers in the form in which pytest lists them."""

_Atom = tuple[str, tuple[tuple[str, object], ...]]
_Evaluate = Callable[[Callable[..., bool]], bool]
"""Takes a function that says whether a mark exists, by its name and keyword arguments."""


class _Undecided(Exception):
    """The expression depends on a mark whose existence was not assumed yet."""

    def __init__(self, atom: _Atom) -> None:
        super().__init__(atom)
        self.atom = atom


def selects_only(expression: str, mark: str) -> bool:
    """Returns whether an expression selects an item because of ``mark``: true with only that mark, false without it."""
    evaluate = _compiled(expression, mark)
    return bool(evaluate(lambda name, **_: name == mark)) and not evaluate(lambda name, **_: False)


def selects(expression: str, mark: str) -> bool:
    """Returns whether an expression selects an item with only the mark ``mark``; an empty expression selects all."""
    return not expression or bool(_compiled(expression)(lambda name, **_: name == mark))


def promotes(expression: str) -> bool:
    """Returns whether an expression can be true of a test marked ``tpu`` and of no test without that mark.

    So ``tpu`` and ``tpu and not slow`` promote. ``smoke or tpu`` does not, as it also selects tests that are not meant
    for a TPU; neither does ``not tpu``.
    """
    evaluate = _compiled(expression, TPU)
    return _can_hold(evaluate, {}, tpu=True) and not _can_hold(evaluate, {}, tpu=False)


def _compiled(expression: str, mark: str = "") -> _Evaluate:
    """Compiles an expression; the result is never true for one that does not name the mark, or that is invalid."""
    if mark not in expression:
        return lambda is_there: False
    from t5x_harness.upstream.pytest import compiled_expression

    compiled = compiled_expression(expression)
    return compiled.evaluate if compiled is not None else lambda is_there: False


def _can_hold(evaluate: _Evaluate, known: dict[_Atom, bool], *, tpu: bool) -> bool:
    """Returns whether some set of marks makes the expression true, with or without ``tpu``, given ``known`` marks."""

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
