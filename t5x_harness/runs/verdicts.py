"""Whether what is sent as a job fits its slice: how that is found out before."""

from __future__ import annotations

from t5x_harness.aot.libtpu import LibtpuMissing, is_installed
from t5x_harness.promotion.settings import UNSEEN
from t5x_harness.spec import AotMode


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
