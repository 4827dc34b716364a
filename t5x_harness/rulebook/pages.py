"""The pages of the rules, generated from their classes: ``docs/rules/`` and the output of ``t5x-harness explain``.

    python -m t5x_harness.rulebook.pages docs/rules

writes a page for each code and the index.
"""

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from t5x_harness.findings.rule import Rule
from t5x_harness.findings.text import paragraph
from t5x_harness.rulebook.codes import (
    AUXILIARY_CODES,
    NOT_CAUGHT,
    RUN_CODES,
    JobCode,
    checks_by_code,
    every_code,
    job_codes,
    rules_by_code,
)
from t5x_harness.rulebook.example_text import BASE_PAGE, base_page, example, marked
from t5x_harness.spec import Severity
from t5x_harness.symptoms.table import symptom_codes

_LEVELS: Mapping[bool, str] = {
    True: "error: the service refuses the job",
    False: "warning: the service takes the job, or may take it",
}
_SEVERITIES: Mapping[Severity, str] = {
    Severity.ERROR: "error: the stage fails",
    Severity.WARNING: "warning: very likely a mistake, the run goes on",
    Severity.NOTE: "note: worth knowing, shown with `-v`",
}


def explained(code: str) -> str:
    """Returns everything known about a code as Markdown that needs no other page.

    Raises:
      KeyError: there is no such code.
    """
    symptoms = symptom_codes()
    if code in symptoms and symptoms[code].title:
        return "\n".join([f"# {code}: {symptoms[code].title}", "", *_in_logs(code)])
    own = _without_logs(code)
    return "\n".join([own, *_in_logs(code)]) if code in symptoms else own


def _without_logs(code: str) -> str:
    rules, checks = rules_by_code(), checks_by_code()
    if code in rules:
        return page(code, rules[code])
    if code in job_codes():
        return job_page(code)
    if code in checks:
        check = checks[code]
        command = f"Checked by `t5x-harness {check.command}`, which prints the fix below what it finds."
        return "\n".join([f"# {code}: {check.title}", "", command, "", *paragraph(check.why), ""])
    if code in RUN_CODES:
        return f"# {code}\n\n{RUN_CODES[code][0].upper()}{RUN_CODES[code][1:]}. It cannot be silenced.\n"
    if code in AUXILIARY_CODES:
        level, title = AUXILIARY_CODES[code]
        what = f"Found by `t5x-harness auxiliary`: {level}." if level else "`t5x-harness auxiliary` avoids it."
        return f"# {code}: {title}\n\n{what} See docs/auxiliary-jobs.md.\n"
    title, reason = next(group[code] for group in NOT_CAUGHT.values() if code in group)
    return f"# {code}: {title}\n\nNothing finds it in a config before it runs: {reason}.\n"


def _in_logs(code: str) -> Iterator[str]:
    """Yields the section on how the log of a job shows a code."""
    about = symptom_codes()[code]
    yield from (f"## In the log of {'an installation' if code.startswith('INS') else 'a job'}", "")
    yield from (*paragraph(f"The likely cause: {about.cause}."), "")
    yield from (*paragraph(f"The fix: {about.fix}."), "")
    if about.command:
        yield from ("```shell", about.command, "```", "")
    texts = dict.fromkeys(text.has for text in about.texts if not text.is_exit)
    by = "by these texts:" if texts else "by the conflict that pip or uv prints."
    yield from (f"`t5x-harness explain --log FILE` recognizes it {by}", "")
    yield from (f"- `{text}`" for text in texts)
    if about.statuses:
        yield f"- a process that ends with status {' or '.join(about.statuses)}"
    yield ""


def page(code: str, rules: Sequence[Rule], *, whole: bool = True) -> str:
    """Returns the page of one code as Markdown.

    Args:
      code: the code, such as ``GIN02``.
      rules: the rules that find it, one for each stage, earliest first.
      whole: whether the page has to be complete by itself.
    """
    first, *later = rules
    found = f"Found by {first.stage}. {_SEVERITIES[first.severity].capitalize()}."
    lines = [f"# {code}: {first.title}", "", found, "", *paragraph(first.why), ""]
    lines += example(first.bad, first.good, whole=whole)
    for rule in later:
        known = f"Found by {rule.stage}, too, once every value is known. {rule.later}".strip()
        lines += [f"## At {rule.stage}", "", *paragraph(known), ""]
    link = f"To [silence](README.md#how-to-silence-it) it for a line: `# t5x-harness: ignore[{code}]`."
    lines += _how_to_silence(code) if whole else [link, ""]
    return "\n".join(lines)


def job_page(code: str) -> str:
    """Returns the page of one code as Markdown."""
    mistake = job_codes()[code]
    lines = [f"# {code}: {mistake.title}", ""]
    if mistake.example == "yaml":
        found = f"Found in the spec of a job for Vertex AI. {_LEVELS[mistake.level == 'error'].capitalize()}."
        lines += [found, ""]
    lines += [*paragraph(mistake.why), "", "## Example and fix", ""]
    lines += ["```diff", *marked(mistake.bad.strip("\n"), mistake.good.strip("\n")), "```", ""]
    if mistake.avoided:
        lines += ["## What avoids it", "", *paragraph(mistake.avoided), ""]
    if mistake.rules:
        lines += ["## Where the rules are from", "", *_job_sources(mistake), ""]
    if mistake.example == "yaml":
        lines += ["It cannot be silenced. Only what has a source of Google's is refused; a warning stops nothing.", ""]
    return "\n".join(lines)


def _job_sources(mistake: JobCode) -> Iterator[str]:
    """Yields a line for each source, with the rules that are based on it."""
    by_source: dict[tuple[str, str], list[str]] = {}
    for rule in mistake.rules:
        verb = "refused" if rule.refuses else "warned about"
        rules = by_source.setdefault((rule.source.title, rule.source.url), [])
        rules.append(f"`{rule.name}` ({verb}, {rule.confidence})")
    for (title, url), rules in by_source.items():
        yield f"- {title}{url and f' <{url}>'}: {', '.join(rules)}"


def pages() -> dict[str, str]:
    """Returns every file of the folder of pages: name and text."""
    found = rules_by_code()
    of_rules = {f"{code}.md": page(code, rules, whole=False) for code, rules in found.items()}
    return {
        "README.md": index(found),
        BASE_PAGE: base_page(),
        "not-caught.md": _not_caught_page(),
        **of_rules,
        **{f"{code}.md": job_page(code) for code in job_codes()},
    }


def index(found: Mapping[str, Sequence[Rule]]) -> str:
    """Returns the index of all codes as Markdown."""
    lines = [
        "# Rules",
        "",
        *paragraph(
            "What the first three stages look for. `t5x-harness explain CODE` prints a page in the terminal. These "
            "pages are made from the rules by `python -m t5x_harness.rulebook.pages docs/rules`. What is known to go "
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
    lines += ["", *_how_to_silence("GIN02")]
    lines += [
        "## How a run went",
        "",
        "These codes say how a run went, and cannot be silenced:",
        "",
        "| code | what it says |",
        "|---|---|",
    ]
    lines += [f"| {code} | {text} |" for code, text in RUN_CODES.items()]
    lines += ["", "## What jobs die of", ""]
    lines += paragraph(
        "`t5x-harness explain --log FILE` finds these in the log of a job, by the texts of JAX, libtpu, T5X, orbax, "
        "tensorstore, Linux and Vertex AI, and those whose codes begin with INS in what pip, uv or an import printed "
        "(`t5x-harness doctor --explain FILE` is the same). `t5x-harness explain CODE` has the cause, the fix and the "
        "texts:"
    )
    lines += ["", "| code | what happened |", "|---|---|"]
    lines += [f"| {code} | {about.title} |" for code, about in symptom_codes().items() if about.title]
    lines += ["", "## Auxiliary jobs", ""]
    lines += ["`t5x-harness auxiliary` finds these in what it is asked for, or avoids them:", ""]
    lines += ["| code | severity | what it says |", "|---|---|---|"]
    lines += [f"| {code} | {level or 'avoided'} | {title} |" for code, (level, title) in AUXILIARY_CODES.items()]
    return "\n".join([*lines, ""])


def _not_caught_page() -> str:
    lines = [
        "# Known to go wrong, and not caught before a run",
        "",
        *paragraph(
            "The failures of T5X users that a look at config, data and shapes could have found in principle, but that "
            "no rule finds, each with the reason. What needs a run, a pod, the TPU compiler or the cloud is in "
            "[what local does not emulate](../what-local-does-not-emulate.md)."
        ),
        "",
    ]
    for heading, rows in NOT_CAUGHT.items():
        lines += [f"## {heading}", "", "| code | what happens | why there is no rule |", "|---|---|---|"]
        lines += [*(f"| {code} | {title} | {reason} |" for code, (title, reason) in rows.items()), ""]
    lines += ["## What changes nothing", ""]
    lines += paragraph(
        "A value that a run never reads has a note (GIN38, GIN02 and others). These have none, because configs are "
        "full of them and no job is lost: a binding that repeats the default, the same program in other words, a seed "
        "where nothing is shuffled or dropped out, a limit that nothing reaches, and what only a later step would "
        "show. `benchmarks/mistakes.py` counts them; the table is in [fidelity](../fidelity.md)."
    )
    lines += ["", "## Found by a run, at another line", ""]
    lines += paragraph(
        "Some mistakes in a user's own code end a stage before training or in it with the exception that T5X shows, "
        "but at the line that uses the code: a feature converter that drops a feature, an optimizer's mask of another "
        "structure than the parameters, a network whose logits have another rank, and a save transformation whose "
        "arrays are none."
    )
    return "\n".join([*lines, ""])


def _how_to_silence(code: str) -> Iterator[str]:
    text = (
        f"For a line of a gin file or module, with a comment at its end or above it: `# t5x-harness: ignore[{code}]`; "
        "for a finding in a task, also at the config's binding of the task's name. For a "
        f"whole file: `# t5x-harness: ignore-file[{code}]`. For a project: `ignore = ['{code}']` in "
        f"`[tool.t5x_harness]` of pyproject.toml. For one call: `--ignore {code}`, with pytest `--t5x-ignore {code}`."
    )
    yield from ("## How to silence it", "", *paragraph(text), "")


def main(folder: Path) -> None:
    """Writes the pages into a folder, and removes pages whose code is gone."""
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


def rule_descriptors(codes: Iterable[str]) -> list[dict[str, Any]]:
    """Returns a ``reportingDescriptor`` for each code, once, ordered by code.

    Args:
      codes: the codes of the findings; a code that this project does not define gets only an id.
    """
    rules, known = rules_by_code(), every_code()
    return [
        _descriptor(code, rules[code])
        if code in rules
        else {"id": code} | ({"shortDescription": {"text": known[code].title}} if code in known else {})
        for code in sorted(set(codes))
    ]


def _descriptor(code: str, rules: Sequence[Rule]) -> dict[str, Any]:
    """Returns the text of the code's page. There is no ``helpUri``, as the pages have no public address."""
    rule, text = rules[0], page(code, rules)
    return {
        "id": code,
        "name": rule.name,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "help": {"text": text, "markdown": text},
        "defaultConfiguration": {"level": rule.severity.value},
        "properties": {"stages": [rule.stage.value for rule in rules]},
    }
