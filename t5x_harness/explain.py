"""``t5x-harness explain``: what a code means, or all of them."""

from __future__ import annotations

import argparse
import difflib
import sys

from t5x_harness.job_pages import job_codes, job_page
from t5x_harness.rule_pages import OTHER_CODES, page, rules_by_code

__all__ = ["add_arguments", "run"]

_FINE, _USAGE = 0, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the argument of ``explain`` to a parser."""
    parser.add_argument("codes", nargs="*", metavar="CODE", help="such as GIN02; without any: the list of all codes")


def run(arguments: argparse.Namespace) -> int:
    """Prints the page of each code, or the list of all.

    Returns:
      The exit status: 0, or 2 for a code that does not exist.
    """
    rules = rules_by_code()
    known = {**dict.fromkeys(rules), **dict.fromkeys(job_codes()), **OTHER_CODES}
    codes = [code.upper() for code in arguments.codes]
    for code in codes:
        if code not in known:
            near = difflib.get_close_matches(code, known, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else "t5x-harness explain lists them all"
            print(f"t5x-harness: there is no code {code}; {hint}", file=sys.stderr)
            return _USAGE
    if codes:
        print(
            "\n".join(page(code, rules[code]) if code in rules else _page_without_rule(code) for code in codes), end=""
        )
        return _FINE
    width = max(len(", ".join(rule.stage for rule in found)) for found in rules.values())
    for code, found in rules.items():
        stages = ", ".join(rule.stage for rule in found)
        print(f"{code}  {stages:{width}}  {found[0].severity:7}  {found[0].title}")
    for code, mistake in job_codes().items():
        print(f"{code}  {'job':{width}}  {mistake.level:7}  {mistake.title}")
    for code, text in OTHER_CODES.items():
        print(f"{code}  {'any':{width}}  error    {text}")
    return _FINE


def _page_without_rule(code: str) -> str:
    if code in job_codes():
        return job_page(code)
    return f"# {code}\n\n{OTHER_CODES[code][0].upper()}{OTHER_CODES[code][1:]}. It cannot be silenced.\n"
