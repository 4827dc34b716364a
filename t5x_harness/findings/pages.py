"""The pages of the rules, made from their classes: ``docs/rules/`` and what ``t5x-harness explain`` prints.

    python -m t5x_harness.findings.pages docs/rules

writes a page for each code and the index.
"""

from __future__ import annotations

import argparse
import difflib
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from t5x_harness.findings.job_pages import job_codes, job_page
from t5x_harness.findings.rule import Example, Rule, all_rules
from t5x_harness.spec import Severity

__all__ = ["OTHER_CODES", "index", "main", "page", "pages", "rules_by_code"]

OTHER_CODES: Mapping[str, str] = {
    "RUN01": "T5X, a library or the run's process stopped, and no rule knows why: see the end of the log",
    "RUN02": "a stage did no work, so it proved nothing",
    "RUN03": "the last checkpoint is not of the step that training ended at",
    "RUN04": "a loss is not finite",
    "RUN05": "a restored checkpoint differs from the state that was saved",
    "RUN06": "a stage took longer than its limit, and was ended",
    "RUN07": "the process of a stage ended by itself: see the end of its log",
    "RUN08": "a stage could not be started, here or as a job",
    "RUN09": "data is out of reach, on the hub or in a bucket, and no rows are declared to stand for it",
    "RUN10": "a library that this config needs, here and in the job, is not installed",
    "RUN11": "a job on a TPU's machine ran on the CPU",
    "RUN12": "the harness itself could not go on: an earlier stage left nothing to begin with, or it has a mistake",
    "USR01": "a function of yours raised: file, line and error are named",
}
"""Codes of findings that no rule makes, because they say how a run went; they cannot be silenced."""

_SEVERITIES: Mapping[Severity, str] = {
    Severity.ERROR: "error: the stage fails",
    Severity.WARNING: "warning: very likely a mistake, the run goes on",
    Severity.NOTE: "note: worth knowing, shown with `-v`",
}
_COMMAND_LINE = "command line"


def rules_by_code() -> dict[str, list[type[Rule]]]:
    """The rules of each code in the order of stages, ordered by code."""
    found: dict[str, list[type[Rule]]] = {}
    for rule in all_rules():
        found.setdefault(rule.code, []).append(rule)
    return dict(sorted(found.items()))


def page(code: str, rules: Sequence[type[Rule]]) -> str:
    """The page of one code as Markdown.

    Args:
      code: such as ``GIN02``.
      rules: those that find it, one for each stage, earliest first.
    """
    first, *later = rules
    lines = [f"# {code}: {first.title}", "", f"Found by {first.stage}. {_SEVERITIES[first.severity].capitalize()}.", ""]
    lines += [*_wrapped(first.why), "", *_bad(first.bad), *_good(first.bad, first.good)]
    for rule in later:
        known = f"Found by {rule.stage}, too, once every value is known: {rule.title}. {rule.why}"
        lines += [f"## At {rule.stage}", "", *_wrapped(known), ""]
    lines += _silence(code)
    return "\n".join(lines)


def pages() -> dict[str, str]:
    """Every file of the folder of pages: name and text."""
    found = rules_by_code()
    of_rules = {f"{code}.md": page(code, rules) for code, rules in found.items()}
    return {"README.md": index(found), **of_rules, **{f"{code}.md": job_page(code) for code in job_codes()}}


def index(found: Mapping[str, Sequence[type[Rule]]]) -> str:
    """The index of all codes as Markdown."""
    lines = [
        "# Rules",
        "",
        *_wrapped(
            "What the first three stages look for. `t5x-harness explain CODE` prints a page in the terminal. These "
            "pages are made from the rules by `python -m t5x_harness.findings.pages docs/rules`. What is known to go "
            "wrong and is not found by a rule, with the reason, is in [not-caught.md](not-caught.md)."
        ),
        "",
        "| code | found by | severity | mistake |",
        "|---|---|---|---|",
    ]
    for code, rules in found.items():
        stages = ", ".join(rule.stage for rule in rules)
        lines.append(f"| [{code}]({code}.md) | {stages} | {rules[0].severity} | {rules[0].title} |")
    lines += ["", "These are about a job on Vertex AI, its spec and the code that sends and follows it:", ""]
    lines += ["| code | found by | severity | mistake |", "|---|---|---|---|"]
    for code, mistake in job_codes().items():
        lines.append(f"| [{code}]({code}.md) | {mistake.found_by} | {mistake.level} | {mistake.title} |")
    lines += ["", "These say how a run went, and cannot be silenced:", "", "| code | what it says |", "|---|---|"]
    lines += [f"| {code} | {text} |" for code, text in OTHER_CODES.items()]
    return "\n".join([*lines, ""])


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 115, break_long_words=False, break_on_hyphens=False)


def _files(example: Example) -> dict[str, str]:
    """Everything that an example consists of, by name."""
    given = "".join(f"--gin.{binding.replace(' = ', '=', 1)}\n" for binding in example.bindings)
    if example.mode is not None:
        given += f"--run_mode={example.mode}\n"
    if example.slice != "v3-8":
        given += f"--slice={example.slice}\n"
    written = {f"the config whose run wrote {folder}": gin for folder, gin in example.checkpoints.items()}
    if example.golden:
        written["run.gin, when its plan was kept"] = example.golden
    return {"run.gin": example.gin, **example.files, **written, **({_COMMAND_LINE: given} if given else {})}


def _bad(example: Example) -> Iterator[str]:
    yield from ("## Bad example", "")
    for name, text in _files(example).items():
        if text.strip():
            language = {".py": "python", ".gin": "gin", ".json": "json"}.get(Path(name).suffix, "text")
            yield from (f"`{name}`", "", f"```{language}", text.rstrip("\n"), "```", "")
    empty = [f"`{name}`" for name, text in _files(example).items() if not text.strip()]
    if empty:
        yield from (f"There is also {' and '.join(empty)}, whose content does not matter.", "")
    if example.at:
        yield from (f"The finding points to the line that begins with `{example.at.strip()}`.", "")


def _good(bad: Example, good: Example) -> Iterator[str]:
    """The good example, as what makes it differ from the bad one."""
    before, after = _files(bad), _files(good)
    yield from ("## Good example", "", "The same with this change:", "", "```diff")
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name, ""), after.get(name, "")
        if not old and not new and (name in before) != (name in after):
            yield f"{'-' if name in before else '+'}there is {name}"
        elif old != new:
            changes = difflib.unified_diff(old.splitlines(), new.splitlines(), name, name, n=1, lineterm="")
            yield from (line for line in changes if not line.startswith("@@"))
    yield from ("```", "")


def _silence(code: str) -> Iterator[str]:
    text = (
        f"For one line of a gin file, with a comment at its end or above it: `# t5x-harness: ignore[{code}]`. For a "
        f"whole file: `# t5x-harness: ignore-file[{code}]`. For a project: `ignore = ['{code}']` in "
        f"`[tool.t5x_harness]` of pyproject.toml. For one call: `--ignore {code}`, with pytest `--t5x-ignore {code}`."
    )
    yield from ("## How to silence it", "", *_wrapped(text), "")


def main(folder: Path) -> None:
    """Writes the pages into a folder, and removes those of codes that are no more."""
    folder.mkdir(parents=True, exist_ok=True)
    made = pages()
    for old in folder.glob("[A-Z][A-Z][A-Z][0-9][0-9].md"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")
    print(f"{len(made)} pages in {folder}")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="Writes the pages of the rules into a folder.")
    arguments.add_argument("folder", nargs="?", type=Path, default=Path("docs/rules"))
    main(arguments.parse_args().folder)
