"""Findings that the user does not want to see: by code for all runs, or by a comment in a file of theirs.

    BATCH_SIZE = 128  # t5x-harness: ignore[GIN02]

silences these codes for its line; a comment on its own line does so for the next line that is not a comment.
``# t5x-harness: ignore-file[GIN02, CKP14]`` silences them in the whole file.  The finding for what ended a stage cannot
be silenced, and silenced findings are counted.
"""

import functools
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from t5x_harness.spec import Finding, Location, Severity
from t5x_harness.system.misspelling import did_you_mean

KEPT_PREFIXES = ("RUN", "USR")
"""Prefixes of the codes for a broken run, which cannot be ignored."""

_COMMENT = re.compile(r"#\s*t5x-harness:\s*(ignore|ignore-file)\[([^\]]*)\]")


def split_silenced(
    findings: Iterable[Finding],
    ignore: Collection[str],
    folder: str | Path,
    texts: Mapping[str, str] = MappingProxyType({}),
    kept: Collection[str] = (),
    bound_at: Location | None = None,
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Separates findings into those to show and those to silence.

    Args:
      findings: the findings of one stage.
      ignore: codes that the project or the command line ignores.
      folder: the folder that relative paths of the findings' places start from.
      texts: the texts of files that were already read, by their names in the findings' places.
      kept: codes whose errors are always shown, because they prevent any other verdict.
      bound_at: the line of the binding that the findings are about, if they name a better place, such as a line of the
        task; a comment at either silences them.

    Returns:
      The findings to show and the silenced ones, each in their order.
    """
    shown: list[Finding] = []
    silenced: list[Finding] = []
    commented = functools.partial(_is_commented_out, folder=Path(folder), texts=texts)
    for finding in findings:
        must_show = finding.code in kept and finding.severity is Severity.ERROR
        hidden = (
            not must_show
            and not finding.code.startswith(KEPT_PREFIXES)
            and (
                finding.code in ignore or commented(finding.code, finding.location) or commented(finding.code, bound_at)
            )
        )
        (silenced if hidden else shown).append(finding)
    return tuple(shown), tuple(silenced)


def codes_to_silence(
    ignore: Sequence[str], select: Sequence[str], known: Callable[[], Collection[str]]
) -> tuple[str, ...]:
    """Returns the codes whose findings are not shown: the ignored ones, and, if any are selected, all others.

    Args:
      ignore: codes, or families of them such as ``MSH``.
      select: codes or families to show; none selects all.
      known: returns the codes of all rules; it is only called if there are codes to look up.
    """
    valid = known() if ignore or select else ()
    return tuple(
        code
        for code in valid
        if any(_is_of(code, given) for given in ignore) or (select and not any(_is_of(code, given) for given in select))
    )


def not_codes(codes: Sequence[str], known: Callable[[], Collection[str]]) -> str | None:
    """Returns a complaint about the first code to ignore or select that no rule has; None if all are valid.

    Args:
      codes: the codes that the user gave, or families of them such as ``MSH``.
      known: returns the codes of all rules; it is only called if there are codes to look up.
    """
    valid = known() if codes else ()
    wrong = next((given for given in codes if not any(_is_of(code, given) for code in valid)), None)
    if wrong is None:
        return None
    if wrong.startswith(KEPT_PREFIXES):
        return f"{wrong} says that a run broke; it cannot be ignored, and is always shown"
    return f"no rule has the code {wrong!r}{did_you_mean(wrong, valid)}"


def _is_of(code: str, given: str) -> bool:
    """Returns whether a code is the given one, or belongs to the given family."""
    return code == given or code.rstrip("0123456789") == given


def _is_commented_out(code: str, at: Location | None, *, folder: Path, texts: Mapping[str, str]) -> bool:
    if at is None:
        return False
    in_file, by_line = _comments(texts[at.file] if at.file in texts else _read(folder / at.file))
    return code in in_file or code in by_line.get(at.line, ())


def _read(file: Path) -> str:
    """Returns the text of a file; an empty text if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return ""


@functools.lru_cache(maxsize=1024)
def _comments(text: str) -> tuple[frozenset[str], dict[int, frozenset[str]]]:
    """Returns the codes that a text silences: everywhere in it, and by line."""
    in_file: frozenset[str] = frozenset()
    by_line: dict[int, frozenset[str]] = {}
    waiting: frozenset[str] = frozenset()
    for number, line in enumerate(text.split("\n"), start=1):
        here: frozenset[str] = frozenset()
        for kind, listed in _COMMENT.findall(line):
            codes = frozenset(code.strip() for code in listed.split(","))
            if kind == "ignore-file":
                in_file |= codes
            else:
                here |= codes
        if line.lstrip().startswith("#"):
            waiting |= here
        elif line.strip():
            by_line[number] = here | waiting
            waiting = frozenset()
    return in_file, {number: codes for number, codes in by_line.items() if codes}
