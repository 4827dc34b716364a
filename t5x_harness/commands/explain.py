"""``t5x-harness explain``: what a code means, or all of them."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Collection, Iterable

from t5x_harness.findings.job_pages import job_codes, job_page
from t5x_harness.findings.pages import OTHER_CODES, page, rules_by_code

__all__ = ["add_arguments", "run"]

_FINE, _USAGE = 0, 2
_AS_DIGITS = str.maketrans("OIL", "011")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the argument of ``explain`` to a parser."""
    parser.add_argument(
        "codes", nargs="*", metavar="CODE", help="such as GIN02, or a family such as GIN; without any: all codes"
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints the page of each code, the list of each family, or the list of all.

    Returns:
      The exit status: 0, or 2 for a code that does not exist.
    """
    rules = rules_by_code()
    known = {**dict.fromkeys(rules), **dict.fromkeys(job_codes()), **OTHER_CODES}
    codes = [code.upper() for code in arguments.codes]
    for code in codes:
        if code not in known and not _of_family(code, known):
            digits = code[:3] + code[3:].translate(_AS_DIGITS)
            near = [digits] if digits in known else difflib.get_close_matches(code, known, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else "t5x-harness explain lists them all"
            print(f"t5x-harness: there is no code {code}; {hint}", file=sys.stderr)
            return _USAGE
    if codes:
        print("\n".join(_explained(code, known) for code in codes), end="")
    else:
        print(_list(known), end="")
    return _FINE


def _of_family(family: str, known: Iterable[str]) -> list[str]:
    """The codes that begin with these letters."""
    return [code for code in known if family.isalpha() and code.startswith(family)]


def _explained(code: str, known: Collection[str]) -> str:
    rules = rules_by_code()
    if code not in known:
        return _list(_of_family(code, known))
    return page(code, rules[code]) if code in rules else _page_without_rule(code)


def _list(codes: Collection[str]) -> str:
    """A line for each code: where it is found, how bad it is, the mistake."""
    lines: list[tuple[str, str, str, str]] = []
    for code, found in rules_by_code().items():
        lines.append((code, ", ".join(rule.stage for rule in found), found[0].severity, found[0].title))
    lines += [(code, "job", mistake.level, mistake.title) for code, mistake in job_codes().items()]
    lines += [(code, "any", "error", text) for code, text in OTHER_CODES.items()]
    shown = [line for line in lines if line[0] in codes]
    width = max(len(stages) for _, stages, _, _ in shown)
    return "".join(f"{code}  {stages:{width}}  {level:7}  {title}\n" for code, stages, level, title in shown)


def _page_without_rule(code: str) -> str:
    if code in job_codes():
        return job_page(code)
    return f"# {code}\n\n{OTHER_CODES[code][0].upper()}{OTHER_CODES[code][1:]}. It cannot be silenced.\n"
