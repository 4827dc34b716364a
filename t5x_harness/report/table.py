"""The table of runs, one row each, as wide as the terminal allows, and a line for each program that was compiled."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from t5x_harness.findings.text import Bytes, Style, wrap
from t5x_harness.report.report import Report, RunRow
from t5x_harness.spec import Outcome, RunResult, Severity, Stage, StageResult

_MARKS = {Outcome.PASSED: "ok", Outcome.FAILED: "FAILED", Outcome.NOT_RUN: "-"}
_TONES = {Outcome.PASSED: "green", Outcome.FAILED: "red", Outcome.NOT_RUN: "dim"}
_GAP = "  "
_LEAST_NAME = 12
_DROPS = (
    *(("", False), ("mesh", False), ("findings", False), ("slice", False), ("mode", False)),
    *(("findings", True), ("slice", True)),
)
"""The columns that go below the table while it is too wide, and whether only after names were cut."""


def table(report: Report, *, width: int, style: Style, notes: bool = False) -> list[str]:
    """Returns the table's lines, followed by the columns for which it has no room.

    Args:
      report: the runs.
      width: the columns of the terminal. If a row is wider, the mesh goes below the table, then anything equal for
        every run (no findings, one slice), then the mode. Then names are cut, and last, findings and slices also go.
      style: the colors, if any.
      notes: whether to count notes as well.
    """
    stages = report.stages
    columns = _columns(report, stages, notes)
    below: dict[str, list[str]] = {}
    for drop, is_last_resort in _DROPS:
        if drop == "mesh":
            columns["slice"] = [row.result.spec.slice for row in report.rows]
            below["mesh"] = [row.mesh for row in report.rows]
        elif drop in columns:
            cells = set(columns[drop])  # without a finding, or with one slice for every run, the column can go
            if drop == "mode" or is_last_resort or (cells == {"-"} if drop == "findings" else len(cells) == 1):
                below[drop] = columns.pop(drop)
        widths = {head: max(map(len, (head, *cells))) for head, cells in columns.items()}
        excess = sum(widths.values()) + len(_GAP) * (len(widths) - 1) - width
        if excess <= (max(0, widths["run"] - _LEAST_NAME) if drop == "mode" or is_last_resort else 0):
            break
    widths["run"] = max(min(widths["run"], _LEAST_NAME), widths["run"] - max(0, excess))
    columns["run"] = [_cut(name, widths["run"]) for name in columns["run"]]
    lines = [style.bold(_GAP.join(head.ljust(size) for head, size in widths.items()).rstrip())]
    for index, row in enumerate(report.rows):
        outcomes = {stage.stage.value: stage.outcome for stage in row.result.stages}
        padded = []
        for head, size in widths.items():
            cell = columns[head][index].ljust(size)
            padded.append(style.tone(_TONES[outcomes[head]], cell) if head in outcomes else cell)
        lines.append(_GAP.join(padded).rstrip())
    for head in ("mode", "slice", "mesh", "findings"):
        pairs = zip(report.rows, below.get(head, ()), strict=False)
        values = names_by_text((row.name, [cell]) for row, cell in pairs if cell not in ("", "-"))
        everywhere = len(next(iter(values.values()), ())) == len(report.rows)
        shown = [value if everywhere else f"{value} ({', '.join(names)})" for value, names in values.items()]
        lines += wrap(f"{head}: {', '.join(shown)}", width, "", "    ") if shown else []
    return lines


def names_by_text(rows: Iterable[tuple[str, Iterable[str]]]) -> dict[str, list[str]]:
    """Returns the texts of all runs, each with the names of the runs to which it applies."""
    found: dict[str, list[str]] = {}
    for name, texts in rows:
        for text in texts:
            found.setdefault(text, []).append(name)
    return found


def _columns(report: Report, stages: Sequence[Stage], notes: bool) -> dict[str, list[str]]:
    """Returns the cells below each heading, in the order in which to show them."""
    rows = report.rows
    specs = [row.result.spec for row in rows]
    return {
        "run": [row.name for row in rows],
        "mode": [spec.mode.value if spec.mode else "?" for spec in specs],
        "slice": [f"{row.result.spec.slice} {row.mesh}".rstrip() for row in rows],
        **{stage.value: [stage_mark(row, stage) for row in rows] for stage in stages},
        "time": [duration(row.seconds) for row in rows],
        "findings": [_counts(row, notes) for row in rows],
    }


def stage_mark(row: RunRow, stage: Stage) -> str:
    """Returns how a stage ended, in a word; empty if the run has no such stage."""
    return next((_MARKS[s.outcome] for s in row.result.stages if s.stage is stage), "")


def _counts(row: RunRow, notes: bool) -> str:
    """Returns ``2 errors, 1 warning``; a dash for none."""
    numbers = {severity: sum(f.severity is severity for f in row.findings) for severity in Severity}
    if not notes:
        del numbers[Severity.NOTE]
    return ", ".join(counted(number, severity) for severity, number in numbers.items() if number) or "-"


def _cut(text: str, size: int) -> str:
    """Returns the end of a name, which tells the nodes of one folder apart."""
    return text if len(text) <= size else f"…{text[1 - size :]}"


def counted(number: int, noun: str) -> str:
    """Returns ``1 error``, ``2 errors``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Returns a time as people write it: ``0.2 s``, ``41 s``, ``3 min 05 s``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"


def verdicts(result: StageResult) -> Iterator[str]:
    """Yields a line for each program of an aot stage: whether it fits, and its least cost."""
    programs = [measure.of for measure in result.measures if measure.name == "fits"]
    for name in dict.fromkeys(programs):
        found = {measure.name: measure.value for measure in result.measures if measure.of == name}
        yield f"{name} {', '.join(_verdict(found))}"


PREEMPTION = "a preemption costs"
"""The plan's fact about the steps that are lost."""


def preemption(result: RunResult) -> Iterator[str]:
    """Yields a line with the cost of a preemption, if the run was planned; with money, if its step was compiled."""
    text = next((text for stage in result.stages for name, text in stage.facts if name == PREEMPTION), None)
    if text is None:
        return
    own = (measure for stage in result.stages for measure in stage.measures if measure.of in ("", "train"))
    found = {measure.name: measure.value for measure in own}
    lost = found["steps_lost_to_a_preemption"]
    cost = [
        f"{found[name] * lost / found['steps_to_train']:.3g} {unit}"
        for name, unit in (("chip_hours_at_least", "chip-hours"), ("usd_at_least", "USD by the list"))
        if name in found
    ]
    steps = f"{lost:g} step{'s' * (lost > 1)}"
    yield f"{PREEMPTION} {text}" + (f"; {steps}: at least {', '.join(cost)}" if cost else "")


def compiled(result: RunResult) -> list[str]:
    """Returns the lines of a run's programs, with its slice; none if nothing was compiled for it."""
    lines = (line for stage in result.stages if stage.stage is Stage.AOT for line in verdicts(stage))
    return [f"{result.spec.slice}: {line}" for line in lines]


def _verdict(found: Mapping[str, float]) -> Iterator[str]:
    yield "fits" if found["fits"] else "does not fit"
    if "hbm_peak" not in found and "hbm_needed" in found:
        yield f"{Bytes(int(found['hbm_needed']))} needed of {Bytes(int(found['hbm_usable']))}"
    elif "hbm_needed" in found:
        peak, needed = (str(Bytes(int(found[name]))) for name in ("hbm_peak", "hbm_needed"))
        yield f"peak {peak}"
        if needed != peak:  # with gaps and code; the headroom and the fit are computed from it
            yield f"needs {needed}"
        yield f"headroom {Bytes(max(0, int(found['hbm_headroom'])))} of {Bytes(int(found['hbm_usable']))}"
    if "chip_hours_at_least" in found:
        yield f"at least {found['chip_hours_at_least']:.3g} chip-hours"
    if "usd_at_least" in found:
        yield f"{found['usd_at_least']:.2f} USD by the list"
