"""The output of ``t5x-harness fit``: the table of combinations and the two best ones, as text or as JSON."""

import argparse
import dataclasses
import shutil
import sys
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

from t5x_harness.aot import libtpu
from t5x_harness.aot.request import TRAIN, AotRun
from t5x_harness.aot.search import FitRow, cheapest, smallest
from t5x_harness.aot.speed import BAND_NAME, Span, price_of
from t5x_harness.commands.arguments import UsageError
from t5x_harness.commands.report_output import PLAIN_WIDTH
from t5x_harness.findings.printable import printable
from t5x_harness.findings.text import Bytes, columns, wrap, wrap_table
from t5x_harness.report.json import json_text
from t5x_harness.report.report import Report
from t5x_harness.slices.slice import get_slice
from t5x_harness.spec import AotMode, RunResult, RunSpec

_COLUMNS = (
    *("slice", "partitions", "batch", "remat", "microbatches", "result", "program", "needs", "headroom"),
    *("step", "hours", "chip-hours", "USD", "why"),
)


@dataclasses.dataclass
class FitReport:
    """The results so far.

    Attributes:
      spec: the config's run.
      hours: the hours that training may take.
      prices: the user's prices, by TPU generation.
      rows: the results, one row for each combination.
      programs: the kinds of programs that have to fit.
      run: the run as its plan describes it; None before the plan.
      refused: the run, if its plan failed, so that no combination could be tried.
      is_complete: whether the search ended without an interruption.
    """

    spec: RunSpec
    hours: float
    prices: Mapping[str, float]
    rows: list[FitRow] = dataclasses.field(default_factory=list)
    programs: tuple[str, ...] = ()
    run: AotRun | None = None
    refused: RunResult | None = None
    is_complete: bool = True

    @property
    def status(self) -> int:
        """The exit status: 0 if any combination fits, otherwise 1."""
        return 0 if smallest(self.rows) is not None else 1


def write(found: FitReport, arguments: argparse.Namespace) -> None:
    """Writes the report to standard output and to the file of ``--output``.

    Raises:
      UsageError: the file cannot be written.
    """
    as_text = arguments.format == "text"
    if not as_text and not found.is_complete:
        print(as_table(found, _width(sys.stderr)), file=sys.stderr)  # programs only get complete reports
        return
    if as_text or arguments.output is not None:
        print(as_table(found, _width(sys.stdout)), flush=True)
    else:
        print(as_json(found), flush=True)
    if arguments.output is not None and found.is_complete:
        try:
            arguments.output.write_text(f"{as_table(found) if as_text else as_json(found)}\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--output {arguments.output}: {error.strerror}") from None


def as_table(found: FitReport, width: int = PLAIN_WIDTH) -> str:
    """Returns the report as text for people.

    Args:
      found: the results so far.
      width: the number of columns to fill. If the table is wider, the reasons are below their rows.
    """
    if found.refused is not None:
        from t5x_harness.report.terminal import render

        return render(Report((found.refused,)), width=width).rstrip()
    lines = [*_table(found.rows, width), ""] if found.rows else []
    for text in (*_sentences(found), *(f"not checked: {text}" for text in _not_checked(found))):
        lines += wrap(text, width, "", "    ")
    return printable("\n".join(lines))


def as_json(found: FitReport) -> str:
    """Returns the report for programs; names contain the units, and seconds, hours and dollars are ranges."""
    best, cheap = smallest(found.rows), cheapest(found.rows, found.hours)
    errors = [] if found.refused is None else [each.to_json() for s in found.refused.stages for each in s.errors]
    whole = {
        "config": list(found.spec.gin_files),
        "aot": str(found.spec.settings.aot),
        "programs": list(found.programs),
        "steps": found.run.steps if found.run is not None else None,
        "hours": found.hours,
        "rows": [_row_as_json(row) for row in found.rows],
        "smallest": found.rows.index(best) if best is not None else None,
        "cheapest": found.rows.index(cheap) if cheap is not None else None,
        "prices": {name: str(price) for name, price in _prices(found)},
        "errors": errors,
        "not_checked": _not_checked(found),
    }
    return json_text(whole)


def _width(stream: TextIO) -> int:
    return shutil.get_terminal_size().columns if stream.isatty() else PLAIN_WIDTH


def _table(rows: list[FitRow], width: int) -> Iterator[str]:
    cells = [_cells(row) for row in rows]
    used = [index for index in range(len(_COLUMNS)) if any(row[index] not in ("", "-") for row in cells)]
    whole = columns([[row[i] for i in used] for row in cells], [_COLUMNS[i] for i in used]).splitlines()
    if max(map(len, whole)) <= width:
        yield from whole
        return
    used = [index for index in used if _COLUMNS[index] != "why"]
    head, *lines = columns([[row[i] for i in used] for row in cells], [_COLUMNS[i] for i in used]).splitlines()
    yield from wrap_table(head, width, "")
    for line, row in zip(lines, rows, strict=True):
        yield from wrap_table(line, width, "")
        yield from wrap(row.why, width, "    ", "    ") if row.why else ()


def _cells(row: FitRow) -> list[object]:
    variant, run = row.variant, row.estimate
    about = "~" if row.is_extrapolated else ""
    over = "-" if (row.headroom_bytes or 0) < 0 else ""
    size = row.needed_bytes
    return [
        variant.slice or "",
        variant.num_partitions or "-",
        variant.batch_size or "-",
        variant.remat_policy or "-",
        variant.num_microbatches or "-",
        row.fits.value,
        row.program or "-",
        "-" if size is None else f"{about}{Bytes(size)}",
        "-" if row.headroom_bytes is None else f"{over}{Bytes(abs(row.headroom_bytes))}",
        "-" if row.step_seconds is None else f"{row.step_seconds.bound:.3g} s",
        "-" if run is None else _band(run.hours),
        "-" if run is None else _band(run.chip_hours),
        "-" if run is None or run.usd is None else _band(run.usd),
        row.why,
    ]


def _band(span: Span) -> str:
    best, worst = f"{span.best:.3g}", f"{span.worst:.3g}"
    return best if best == worst else f"{best} to {worst}"


def _sentences(found: FitReport) -> Iterator[str]:
    if not found.is_complete:
        known = len(found.rows)
        yield f"interrupted: {known} combination{' is' if known == 1 else 's are'} known"
    best = smallest(found.rows)
    if best is None:
        yield "no combination that was compiled fits" if found.rows else "nothing was compiled"
    else:
        assert best.needed_bytes is not None
        needed = f"{best.program} needs {Bytes(best.needed_bytes)} of {Bytes(best.usable_bytes)}"
        yield f"the smallest slice that holds it: {_name(best)} ({needed})"
    if any(row.needed_bytes is not None for row in found.rows):
        code = " and the program's code" if found.spec.settings.aot is AotMode.FULL else ""
        yield f"needs: the peak, and the gaps between temporary values{code}, which the compiler reserves, too"
    if any(row.estimate for row in found.rows):
        yield from _in_time(found)
    elif TRAIN in found.programs and best is not None and found.run is not None and found.run.steps is None:
        yield "how long it trains is not known: no binding says how many steps (--gin.TRAIN_STEPS=…)"


def _in_time(found: FitReport) -> Iterator[str]:
    cheap = cheapest(found.rows, found.hours)
    if cheap is None or cheap.estimate is None:
        yield f"none of those that fit ends within {found.hours:g} h at the slow end"
    else:
        run = cheap.estimate
        cost = f"{_band(run.usd)} USD" if run.usd is not None else f"{_band(run.chip_hours)} chip-hours, no price known"
        yield (
            f"the cheapest that ends within {found.hours:g} h: {_name(cheap)} "
            f"({run.steps} steps in {_band(run.hours)} h, {cost})"
        )
    yield f"step: the least that the hardware allows; hours, chip-hours and USD: {BAND_NAME}"
    for name, price in _prices(found):
        yield f"price of {name}: {price}"


def _name(row: FitRow) -> str:
    changes = [text for text in row.changes.split(" and ") if text and not text.startswith("--slice")]
    return f"{row.variant.slice}{' with ' if changes else ''}{' and '.join(changes)}"


def _prices(found: FitReport) -> list[tuple[str, Any]]:
    slices = [get_slice(row.variant.slice or "") for row in found.rows if row.estimate is not None]
    prices = {each.generation.name: price_of(each, found.prices) for each in slices}
    return [(name, price) for name, price in prices.items() if price is not None]


def _not_checked(found: FitReport) -> list[str]:
    texts = [*found.run.not_checked, *libtpu.untried()] if found.run is not None else []
    if any(row.needed_bytes is not None for row in found.rows) and found.spec.settings.aot is not AotMode.FULL:
        texts.append("the size of the programs' code: none was generated; --aot=full does")
    if any(row.is_extrapolated for row in found.rows):
        texts.append("numbers with ~ are extrapolated from few layers; --aot=memory compiles all")
    return texts


def _row_as_json(row: FitRow) -> dict[str, Any]:
    run = row.estimate
    return {
        **row.variant.to_json(),
        "changes": row.changes,
        "result": row.fits.value,
        "why": row.why,
        "program": row.program,
        "hbm_needed_bytes": row.needed_bytes,
        "hbm_usable_bytes": row.usable_bytes or None,
        "hbm_headroom_bytes": row.headroom_bytes,
        "is_extrapolated": row.is_extrapolated,
        "step_seconds": _span(row.step_seconds),
        "hours": _span(run.hours if run is not None else None),
        "chip_hours": _span(run.chip_hours if run is not None else None),
        "usd": _span(run.usd if run is not None else None),
    }


def _span(span: Span | None) -> dict[str, float] | None:
    return dataclasses.asdict(span) if span is not None else None
