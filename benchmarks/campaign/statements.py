"""Mutants of statements: their order, names, scopes and spelling, and characters that nobody sees."""

import re
from collections.abc import Callable, Iterator

from .mutant import Case, Mutant, replaced

_BINDING = re.compile(r"^\s*[\w./]+\s*=|^\s+\w+\s*=")
_NAME = re.compile(r"[A-Za-z_]{4,}")

_Change = Callable[[str], str]
"""Changes a line; returns it as it is if there is nothing to change."""


def _swapped(text: str) -> str:
    middle = len(text) // 2
    return text[: middle - 1] + text[middle] + text[middle - 1] + text[middle + 1 :]


def _misspelt_name(line: str) -> str:
    found = _NAME.search(line)
    return line[: found.start()] + _swapped(found[0]) + line[found.end() :] if found else line


_OF_A_LINE: tuple[tuple[str, _Change], ...] = (
    ("name misspelt", _misspelt_name),
    ("no-break space", lambda line: line.replace(" = ", "\u00a0= ", 1)),
    ("zero-width space", lambda line: re.sub(r"(\w)(\s*=)", "\\1\u200b\\2", line, count=1)),
    ("typographic quotes", lambda line: re.sub(r"'([^']*)'", "\u2018\\1\u2019", line)),
    ("quote missing", lambda line: line[: line.rindex("'")] if line.rstrip().endswith("'") else line),
    ("comma at the end", lambda line: f"{line}," if _BINDING.match(line) else line),
    ("== for =", lambda line: line.replace(" = ", " == ", 1)),
    (": for =", lambda line: line.replace(" = ", ": ", 1)),
    ("commented out", lambda line: f"# {line}" if _BINDING.match(line) else line),
    ("tab in front", lambda line: f"\t{line}"),
    ("space in front", lambda line: f" {line}"),
    ("indent missing", lambda line: line.lstrip()),
    ("scope misspelt", lambda line: re.sub(r"^(\s*)([a-z_]{4,})/", lambda m: f"{m[1]}{_swapped(m[2])}/", line)),
    ("scope missing", lambda line: re.sub(r"^(\s*)[a-z_]+/", r"\1", line)),
    ("scope added", lambda line: f"train/{line}" if re.match(r"[a-z]\w*\.[\w.]+ =", line) else line),
    ("called", lambda line: f"{line}()" if re.search(r"@[\w./]+$", line) else line),
    ("not called", lambda line: line.removesuffix("()")),
    ("@ for %", lambda line: line.replace("= %", "= @", 1)),
    ("% for @", lambda line: line.replace("= @", "= %", 1)),
    ("macro quoted", lambda line: re.sub(r"= (%\w+)$", r"= '\1'", line)),
    ("import as a text", lambda line: re.sub(r"^import (.+)$", r"import '\1'", line)),
    ("include without quotes", lambda line: re.sub(r"^include '(.+)'$", r"include \1", line)),
)


def of_statements(case: Case) -> Iterator[Mutant]:
    """Yields mutants of each line of a case's own file."""
    lines = case.text.splitlines()
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        names = tuple(_NAME.findall(line)[-1:])
        for word, change in _OF_A_LINE:
            if (changed := change(line)) != line:
                yield _mutant(case, word, changed, replaced(case.text, number, changed), number, names)
        yield _mutant(case, "removed", f"no {line.strip()}", replaced(case.text, number, ""), 0, names)
        yield _mutant(case, "twice", line.strip(), replaced(case.text, number, f"{line}\n{line}"), number + 1, names)
        if number < len(lines) and lines[number].strip():
            both = f"{lines[number]}\n{line}"
            text = replaced(replaced(case.text, number + 1, ""), number, both)
            yield _mutant(case, "one line too late", line.strip(), text, number + 1, names)
        if line.startswith(("include", "import", "from")):
            text = f"{replaced(case.text, number, '')}{line}\n"
            yield _mutant(case, "at the end", line, text, text.count("\n"), names)
    yield _mutant(case, "byte order mark", "a BOM before the first line", f"\ufeff{case.text}", 1, ())
    yield _mutant(case, "old line ends", "CR LF", case.text.replace("\n", "\r\n"), 0, ())
    yield _mutant(case, "file twice", "the whole file, twice", case.text * 2, 0, ())


def _mutant(case: Case, word: str, what: str, text: str, line: int, names: tuple[str, ...]) -> Mutant:
    return Mutant(case.name, f"statement: {word}", what.strip(), {case.file: text}, case.file, line, names)
