"""Examples of rules as Markdown: whole, or as what differs from the files that most of them start from."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path

from t5x_harness.findings.examples import BASES, Base
from t5x_harness.findings.rule import Example

BASE_PAGE = "base.md"
"""The page with the files that examples start from."""

_COMMAND_LINE = "command line"
_LANGUAGES = {".py": "python", ".gin": "gin", ".json": "json"}


def base_page() -> str:
    """Returns the page with the files that examples start from, as Markdown."""
    lines = [
        "# What the examples start from",
        "",
        "Most pages show only what their example adds to these files, or changes in them. `t5x-harness explain CODE`",
        "prints every file of an example in full.",
        "",
    ]
    for base in BASES:
        lines += [f"## {base.heading}", "", f"```{_LANGUAGES['.gin' if 'config' in base.heading else '.py']}"]
        lines += [*base.text.splitlines(), "```", ""]
    return "\n".join(lines)


def bad_example(example: Example, *, whole: bool) -> Iterator[str]:
    """Yields the lines of the section that shows an example with its mistake.

    Args:
      example: of a rule.
      whole: print every file in full; else link to :data:`BASE_PAGE` and print what differs.
    """
    yield from ("## Bad example", "")
    files = _files(example)
    for name, text in files.items():
        if text.strip():
            base = None if whole else _base_of(text)
            yield from _file(name, text) if base is None else _file_on_base(name, text, base)
    empty = [f"`{name}`" for name, text in files.items() if not text.strip()]
    if empty:
        yield from (f"There is also {' and '.join(empty)}, whose content does not matter.", "")
    if example.at:
        yield from (f"The finding points to the line that begins with `{example.at.strip()}`.", "")


def good_example(bad: Example, good: Example) -> Iterator[str]:
    """Yields the lines of the section that shows the good example, as the change that makes it of the bad one."""
    before, after = _files(bad), _files(good)
    yield from ("## Good example", "", "The same with this change:", "", "```diff")
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name, ""), after.get(name, "")
        if name in before and name not in after and name != _COMMAND_LINE:
            yield f"-there is {name}"
        elif not old and not new and name not in before:
            yield f"+there is {name}"
        elif old != new:
            changes = difflib.unified_diff(old.splitlines(), new.splitlines(), name, name, n=1, lineterm="")
            yield from (line for line in changes if not line.startswith("@@"))
    yield from ("```", "")


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


def _file(name: str, text: str) -> Iterator[str]:
    language = _LANGUAGES.get(Path(name).suffix, "text")
    yield from (f"`{name}`", "", f"```{language}", text.rstrip("\n"), "```", "")


def _base_of(text: str) -> Base | None:
    """Returns the file that a text starts from; None where it has most lines of none."""
    lines = text.splitlines()
    near = [(sum(line in lines for line in base.text.splitlines()), base) for base in BASES]
    shared, base = max(near, key=lambda found: found[0])
    return base if shared * 2 > len(base.text.splitlines()) else None


def _file_on_base(name: str, text: str, base: Base) -> Iterator[str]:
    """Yields a file as what it has more than its base, or elsewhere; ``...`` stands for lines that are the base's."""
    link = f"[{base.heading.lower()}]({BASE_PAGE}#{base.heading.lower().replace(' ', '-')})"
    language = _LANGUAGES[".py" if "module" in base.heading else ".gin"]
    if text == base.text:
        yield from (f"`{name}` is {link}.", "")
    elif text.startswith(base.text):
        added = text.removeprefix(base.text).strip("\n")
        yield from (f"`{name}` is {link} plus:", "", f"```{language}", added, "```", "")
    else:
        yield from (f"`{name}` is {link} with this change (`...` is unchanged):", "", f"```{language}")
        yield from (*_differing(base.text.splitlines(), text.splitlines()), "```", "")


def _differing(old: list[str], new: list[str]) -> Iterator[str]:
    """Yields the lines that are new, and one more on each side; ``...`` stands for the others."""
    shown = 0
    for group in difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(1):
        if group[0][3] > shown:
            yield "..."
        yield from new[group[0][3] : group[-1][4]]
        shown = group[-1][4]
    if shown < len(new):
        yield "..."
