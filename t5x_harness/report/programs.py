"""What the TPU's compiler says of the programs of a run, in a line each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from t5x_harness.findings.tables import Bytes
from t5x_harness.spec import RunResult, Stage, StageResult


def verdicts(result: StageResult) -> Iterator[str]:
    """Yields a line for each program of an aot stage: whether it fits, and what it costs at least."""
    programs = [measure.of for measure in result.measures if measure.name == "fits"]
    for name in dict.fromkeys(programs):
        found = {measure.name: measure.value for measure in result.measures if measure.of == name}
        yield f"{name} {', '.join(_verdict(found))}"


def compiled(result: RunResult) -> list[str]:
    """Returns these lines for a run, with its slice; none if nothing was compiled for it."""
    lines = (line for stage in result.stages if stage.stage is Stage.AOT for line in verdicts(stage))
    return [f"{result.spec.slice}: {line}" for line in lines]


def _verdict(found: Mapping[str, float]) -> Iterator[str]:
    yield "fits" if found["fits"] else "does not fit"
    if "hbm_peak" not in found and "hbm_needed" in found:
        yield f"{Bytes(int(found['hbm_needed']))} needed of {Bytes(int(found['hbm_usable']))}"
    elif "hbm_needed" in found:
        peak, needed = (str(Bytes(int(found[name]))) for name in ("hbm_peak", "hbm_needed"))
        yield f"peak {peak}"
        if needed != peak:  # with gaps and code; it is what headroom is counted from, and what fit compares
            yield f"needs {needed}"
        yield f"headroom {Bytes(max(0, int(found['hbm_headroom'])))} of {Bytes(int(found['hbm_usable']))}"
    if "chip_hours_at_least" in found:
        yield f"at least {found['chip_hours_at_least']:.3g} chip-hours"
    if "usd_at_least" in found:
        yield f"{found['usd_at_least']:.2f} USD by the list"
