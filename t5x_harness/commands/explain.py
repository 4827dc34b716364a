"""``t5x-harness explain``: explains a code, lists all of them, or says what the log of a job died of."""

import argparse
import difflib
import sys
from collections.abc import Mapping

from t5x_harness.commands.arguments import FINE, USAGE, UsageError
from t5x_harness.commands.explain_log import explain_log
from t5x_harness.rulebook.codes import CodeSummary, every_code
from t5x_harness.rulebook.pages import explained

EPILOG = """\
examples:
  t5x-harness explain GIN02
  t5x-harness explain POD              every code of a family in a line
  t5x-harness explain                  every code in a line
  t5x-harness explain --log job.log    what a job died of: the host, its last step, the cause and the fix
  gcloud logging read FILTER --order=asc --format=json | jq -c '.[]' | t5x-harness explain --log -

A log may be of one host, or of several with the host before each line: worker 3: ..., [task 3] ..., workerpool1-2: ...
It may also have one entry of Cloud Logging as JSON a line. Colors and bytes that are not text do no harm, and secrets
are not repeated. With --log the exit status is 0 if a known text was found, 1 if none was, and 2 if the log cannot be
read.
"""

_AS_DIGITS = str.maketrans("OIL", "011")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``explain`` to a parser."""
    parser.add_argument(
        "codes", nargs="*", metavar="CODE", help="such as GIN02, or a family such as GIN; without any: all codes"
    )
    parser.add_argument(
        "--log",
        metavar="FILE",
        help="the log of a job, which may have ended on any machine; - reads it from standard input",
    )


def main(arguments: argparse.Namespace) -> int:
    """Prints the page of each code, the list of each family, or the list of all codes; or what a log died of.

    Returns:
      The exit status: 0, 1 if nothing is recognized in a log, or 2 if a code does not exist.

    Raises:
      UsageError: both codes and a log were given, or the log cannot be read.
    """
    if arguments.log is not None:
        if arguments.codes:
            raise UsageError(f"--log explains a log, and {' '.join(arguments.codes)} a code: give one of them")
        return explain_log(arguments.log)
    known = every_code()
    codes = [code.upper() for code in arguments.codes]
    for code in codes:
        if code not in known and not _of_family(code, known):
            digits = code[:3] + code[3:].translate(_AS_DIGITS)
            near = [digits] if digits in known else difflib.get_close_matches(code, known, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else "t5x-harness explain lists them all"
            print(f"t5x-harness: there is no code {code}; {hint}", file=sys.stderr)
            return USAGE
    pages = [explained(code) if code in known else _list(_of_family(code, known)) for code in codes]
    print("\n".join(pages) if codes else _list(known), end="")
    return FINE


def _of_family(family: str, known: Mapping[str, CodeSummary]) -> dict[str, CodeSummary]:
    """Returns the codes of a family, which begin with its letters."""
    return {code: about for code, about in known.items() if family.isalpha() and code.startswith(family)}


def _list(codes: Mapping[str, CodeSummary]) -> str:
    """Returns a line for each code: the stage that finds it, its severity, and the mistake."""
    width = max(len(about.found_by) for about in codes.values())
    return "".join(f"{code}  {a.found_by:{width}}  {a.level:7}  {a.title}\n" for code, a in codes.items())
