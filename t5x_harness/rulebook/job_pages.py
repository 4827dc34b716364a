"""The pages of what goes wrong between a config and its job on Vertex AI, which no rule of a config can find.

They stand in ``docs/rules/`` beside the rules' pages; :mod:`t5x_harness.rulebook.pages` writes them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Literal

from t5x_harness.findings.text import paragraph
from t5x_harness.google.vertex.validation import service_rules
from t5x_harness.google.vertex.validation.rules import SpecRule, read_table
from t5x_harness.rulebook.example_text import marked
from t5x_harness.vertex.job_rules import job_rules

_LEVELS: Mapping[bool, str] = {
    True: "error: the service refuses the job",
    False: "warning: the service takes the job, or may take it",
}


@dataclasses.dataclass(frozen=True)
class JobCode:
    """A mistake with a job.

    Attributes:
      code: of the failure catalogue.
      title: the mistake in a few words.
      why: what happens, and why.
      example: the language of both examples.
      bad: a job's config, or code, with the mistake.
      good: the same without it.
      avoided: what ``t5x-harness submit`` does instead; empty where the spec alone matters.
      location: the region that the bad example is for, where that is the mistake.
      good_location: and the good one.
    """

    code: str
    title: str
    why: str
    example: Literal["yaml", "python"]
    bad: str
    good: str
    avoided: str = ""
    location: str = ""
    good_location: str = ""

    @property
    def rules(self) -> tuple[SpecRule, ...]:
        """The rules of specs that find it."""
        return tuple(rule for rule in (*service_rules(), *job_rules()) if rule.code == self.code)

    @property
    def found_by(self) -> str:
        """Where it is found, in a word or two."""
        return "job spec" if self.example == "yaml" else "avoided by submit"

    @property
    def level(self) -> str:
        """``error``, ``warning``, or nothing for what is not found but avoided."""
        if self.example != "yaml":
            return ""
        return "error" if any(rule.refuses for rule in self.rules) else "warning"


@functools.cache
def job_codes() -> Mapping[str, JobCode]:
    """Returns every mistake with a job by its code, sorted."""
    return {code: JobCode(code, **about) for code, about in sorted(read_table(__package__, "job_codes.toml").items())}


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
        lines += ["## Where the rules are from", "", *_sources(mistake), ""]
    if mistake.example == "yaml":
        lines += ["It cannot be silenced. Only what has a source of Google's is refused; a warning stops nothing.", ""]
    return "\n".join(lines)


def _sources(mistake: JobCode) -> Iterator[str]:
    """Yields a line for each source, with the rules that are from it."""
    by_source: dict[tuple[str, str], list[str]] = {}
    for rule in mistake.rules:
        verb = "refused" if rule.refuses else "warned about"
        rules = by_source.setdefault((rule.source.title, rule.source.url), [])
        rules.append(f"`{rule.name}` ({verb}, {rule.confidence})")
    for (title, url), rules in by_source.items():
        yield f"- {title}{url and f' <{url}>'}: {', '.join(rules)}"
