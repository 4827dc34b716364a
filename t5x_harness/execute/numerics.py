"""The numerics of a run's steps: the CPU's, or a TPU's default precision of matrix products."""

from __future__ import annotations

import dataclasses

from t5x_harness.findings.stage_report import StageReport
from t5x_harness.spec import RunSpec
from t5x_harness.upstream.tpu_numerics import lowered, use_tpu_numerics

_APPROXIMATE = (
    "the TPU's own numbers: --tpu-numerics rounds the operands of float32 matrix products as a TPU does; the order of "
    "sums and functions such as exp are the CPU's"
)
_OR_PRECISION = "; if it is finite without --tpu-numerics, a matrix product in the model needs precision='highest'"


class Numerics:
    """The numerics of one run, which may share its process with other runs.

    Args:
      spec: the run.
    """

    def __init__(self, spec: RunSpec) -> None:
        self._on = spec.settings.tpu_numerics
        self._before = lowered()

    def use(self) -> None:
        """Makes everything that is compiled from now on use this run's numerics.

        Raises:
          JaxLacksRules: the installed JAX cannot round.
        """
        use_tpu_numerics(self._on)

    def note(self, report: StageReport) -> None:
        """Reports which numerics a stage executed its steps with."""
        if not self._on:
            return
        found = lowered().since(self._before)
        if found.rounded:
            text = f"as on a TPU: float32 operands of {found.rounded} matrix products rounded to bfloat16"
        else:
            text = "as on a TPU, where nothing is rounded: no matrix product of float32 has default precision"
        if found.exact:
            text += f"; {found.exact} left in float32, as their precision asks for it"
        if found.of_vectors:
            text += f"; {found.of_vectors} by a vector left in float32, as a TPU has them"
        report.fact("numerics", text)
        report.not_checked.append(_APPROXIMATE)
        report.findings = [
            dataclasses.replace(finding, fix=f"{finding.fix}{_OR_PRECISION}") if finding.code == "RUN04" else finding
            for finding in report.findings
        ]
