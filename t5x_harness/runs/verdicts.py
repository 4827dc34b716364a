"""Whether what is sent as a job fits its slice: how that is found out before, and what is reported of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from t5x_harness.aot.libtpu import LibtpuMissing, is_installed
from t5x_harness.aot.request import EVAL, PREDICT, SCORE, TRAIN
from t5x_harness.findings.tables import Bytes
from t5x_harness.promotion.settings import UNSEEN
from t5x_harness.spec import AotMode, StageResult


def aot_mode(given: str | None, *, full_size: bool) -> tuple[AotMode | None, str]:
    """Returns how a job's programs are compiled before it is sent; or None, and why not, in words.

    Args:
      given: a mode, or ``off``; None where nobody says.
      full_size: whether the job runs at the sizes of its config: what is shrunk fits, and nothing is said of it.
    """
    if given and given != UNSEEN:
        return AotMode(given), ""
    if not full_size:
        return None, ""
    if given:
        return None, "this was asked to be left out"
    return (AotMode.DEPTHS, "") if is_installed() else (None, str(LibtpuMissing()))


def verdicts(result: StageResult) -> Iterator[str]:
    """Yields a line for each program of an aot stage: whether it fits, and what it costs at least."""
    for name in (TRAIN, EVAL, PREDICT, SCORE):
        found = {measure.name: measure.value for measure in result.measures if measure.of == name}
        if "fits" in found:
            yield f"{name} {', '.join(_verdict(found))}"


def _verdict(found: Mapping[str, float]) -> Iterator[str]:
    yield "fits" if found["fits"] else "does not fit"
    if "hbm_peak" not in found and "hbm_needed" in found:
        yield f"{Bytes(int(found['hbm_needed']))} needed of {Bytes(int(found['hbm_usable']))}"
    elif "hbm_needed" in found:
        yield f"peak {Bytes(int(found['hbm_peak']))}"
        yield f"headroom {Bytes(max(0, int(found['hbm_headroom'])))} of {Bytes(int(found['hbm_usable']))}"
    if "chip_hours_at_least" in found:
        yield f"at least {found['chip_hours_at_least']:.3g} chip-hours"
    if "usd_at_least" in found:
        yield f"{found['usd_at_least']:.2f} USD by the list"
