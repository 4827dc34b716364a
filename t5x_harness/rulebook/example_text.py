"""Examples of rules as Markdown, with mistake and fix merged: whole, or only the differences from their base files."""

import difflib
from collections.abc import Iterator
from pathlib import Path

from t5x_harness.findings.rule import BASES, Example

BASE_PAGE = "base.md"
"""The page with the files that examples start from."""

_COMMAND_LINE = "command line"
_REQUIRED = ("MIXTURE_OR_TASK_NAME", "TASK_FEATURE_LENGTHS", "DROPOUT_RATE")
_OPEN = "The example is short: lint also names the required values that it leaves open ([GIN03](GIN03.md))."
_LANGUAGES = {".py": "python", ".gin": "gin", ".json": "json"}


def base_page() -> str:
    """Returns the page with the files that examples start from, as Markdown."""
    lines = [
        "# What the examples start from",
        "",
        "Most pages show only what their example adds to these files, or changes in them; `...` stands for the rest.",
        "`t5x-harness explain CODE` prints every file of an example in full.",
        "",
    ]
    for heading, text in BASES.items():
        lines += [f"## {heading}", "", f"```{_LANGUAGES['.gin' if 'config' in heading else '.py']}"]
        lines += [*text.splitlines(), "```", ""]
    return "\n".join(lines)


def example(bad: Example, good: Example, *, whole: bool) -> Iterator[str]:
    """Yields the lines of the section that shows an example's mistake (``-``) and its fix (``+``).

    Args:
      bad: the example with the mistake.
      good: the same example, fixed.
      whole: whether to print every file in full; else link to :data:`BASE_PAGE` and print the differences.
    """
    yield from ("## Example and fix", "")
    before, after = _files(bad), _files(good)
    for name, text in before.items():
        fixed = after.get(name, "" if name == _COMMAND_LINE else text)
        if text.strip() or fixed.strip():
            yield from _file(name, text, fixed, None if whole else _base_of(text))
    for name, text in after.items():
        if name not in before and text.strip():
            yield from _file(name, "", text, None)
    about = {
        "There is also {}, whose content does not matter.": [
            name for name, text in before.items() if not text.strip() and not after.get(name, "").strip()
        ],
        "The fix adds {}.": [name for name, text in after.items() if name not in before and not text.strip()],
        "The fix removes {}.": [name for name in before if name not in after and name != _COMMAND_LINE],
    }
    for sentence, names in about.items():
        if names:
            yield from (sentence.format(" and ".join(f"`{name}`" for name in names)), "")
    given = "\n".join(("", *good.gin.splitlines(), *good.bindings))
    if "include 't5x/configs/runs/" in given and not all(f"\n{name} =" in given for name in _REQUIRED):
        yield from (_OPEN, "")
    if bad.at:
        yield from (f"The finding points to the line that begins with `{bad.at.strip()}`.", "")


def marked(bad: str, good: str, *, hidden: str = "") -> list[str]:
    """Merges two texts: lines that only the first has come after ``-``, lines that only the second has after ``+``.

    Args:
      bad: the text with a mistake.
      good: the same text, fixed.
      hidden: text that readers know: its lines that are not near a change are replaced by ``...``.

    Returns:
      Lines that begin with a mark or a space.
    """
    old, new, known = bad.splitlines(), good.splitlines(), hidden.splitlines()
    unchanged = {
        at + offset
        for _, at, size in difflib.SequenceMatcher(None, known, old, autojunk=False).get_matching_blocks()
        for offset in range(size)
    }
    lines: list[tuple[str, bool]] = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            lines += [(f" {old[at]}".rstrip(), at in unchanged) for at in range(a, b)]
        else:
            lines += [(f"-{line}", False) for line in old[a:b]] + [(f"+{line}", False) for line in new[c:d]]
    shown: list[str] = []
    for at, (line, is_known) in enumerate(lines):
        if not is_known or not all(near for _, near in lines[max(at - 1, 0) : at + 2]):
            shown.append(line)
        elif shown[-1:] != [" ..."]:
            shown.append(" ...")
    return shown


def _files(example: Example) -> dict[str, str]:
    """Returns everything that an example consists of, by name."""
    given = "".join(f"--gin.{binding.replace(' = ', '=', 1)}\n" for binding in example.bindings)
    if example.mode is not None:
        given += f"--run_mode={example.mode}\n"
    if example.slice != "v3-8":
        given += f"--slice={example.slice}\n"
    written = {f"the config whose run wrote {folder}": gin for folder, gin in example.checkpoints.items()}
    if example.golden:
        written["run.gin, when its plan was kept"] = example.golden
    return {"run.gin": example.gin, **example.files, **written, **({_COMMAND_LINE: given} if given else {})}


def _file(name: str, bad: str, good: str, base: str | None) -> Iterator[str]:
    """Yields a file; with the heading of a base, only its additions and differences from the base."""
    anchor = (base or "").lower()
    link = f"[{anchor}]({BASE_PAGE}#{anchor.replace(' ', '-')})"
    if base is not None and bad == good == BASES[base]:
        yield from (f"`{name}` is {link}.", "")
        return
    yield from (f"`{name}`" if base is None else f"`{name}` (`...` is {link}):", "")
    lines = marked(bad, good, hidden="" if base is None else BASES[base])
    if bad == good:
        yield from (f"```{_LANGUAGES.get(Path(name).suffix, 'text')}", *(line[1:] for line in lines), "```", "")
    else:
        yield from ("```diff", *lines, "```", "")


def _base_of(text: str) -> str | None:
    """Returns the heading of the file that a text starts from; None if it shares too few lines with each."""
    lines = text.splitlines()
    shared = {heading: [line in lines for line in base.splitlines()] for heading, base in BASES.items()}
    nearest = max(shared, key=lambda heading: sum(shared[heading]))
    return nearest if sum(shared[nearest]) * 2 > len(shared[nearest]) else None
