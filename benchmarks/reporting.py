"""Repeats a measurement, prints a Markdown table of its figures, and writes it into a page."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["report", "script", "write_table"]

os.environ["T5X_HARNESS_KEEP"] = "0"  # no figure depends on what an earlier call has left


def script(name: str) -> str:
    """Returns a program of this environment; ``python -m`` would import what is in the working directory instead."""
    return str(Path(sys.executable).with_name(name))


def report(
    name: str,
    measure: Callable[[], dict[str, float]],
    *,
    rounds: int,
    description: str,
    warm_up: Callable[[], object] | None = None,
) -> None:
    """Runs the command line of a benchmark.

    Args:
      name: the name of the markers in the page, ``<!-- name -->`` and ``<!-- /name -->``.
      measure: makes one round; returns seconds, ratios (``a / b``) or another unit that the name contains: ``c (ms)``.
      rounds: the default number of rounds.
      description: the text of ``--help``.
      warm_up: is called before the first round, so that no round pays for what the first call ever compiles and reads.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--write", type=Path, help="Markdown file whose table between the two markers is replaced")
    arguments = parser.parse_args()
    if warm_up is not None:
        warm_up()
    measured = []
    for number in range(arguments.rounds):
        measured.append(measure())
        print(f"round {number + 1}:", ", ".join(f"{k} {v:.2f}" for k, v in measured[-1].items()), flush=True)
    result = table(measured)
    print(result)
    if arguments.write:
        write_table(arguments.write, name, result)


def write_table(page: Path, name: str, table: str) -> None:
    """Writes a table into a page, between the markers of that name."""
    text = page.read_text(encoding="utf-8")
    head, tail = text.split(f"<!-- {name} -->")[0], text.split(f"<!-- /{name} -->")[1]
    page.write_text(f"{head}<!-- {name} -->\n{table}\n<!-- /{name} -->{tail}", encoding="utf-8")


def table(rounds: Sequence[dict[str, float]]) -> str:
    """Returns a Markdown table of medians, minima and maxima."""
    lines = ["| figure | median | min | max |", "|---|---|---|---|"]
    for key in rounds[0]:
        values = [r[key] for r in rounds]
        unit = "" if "/" in key or key.endswith(")") else " s"
        cells = (f"{f(values):.2f}{unit}" for f in (statistics.median, min, max))
        lines.append(f"| {key} | {' | '.join(cells)} |")
    return "\n".join(lines)
