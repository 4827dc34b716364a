"""Reports the numerics of a run that rounds as a TPU does."""

import dataclasses

from t5x_harness.findings.stage_report import StageReport
from t5x_harness.upstream.jax import Contractions

_APPROXIMATE = (
    "the TPU's own numbers: --tpu-numerics rounds the operands of float32 matrix products as a TPU does; the order of "
    "sums and functions such as exp are the CPU's"
)
_OR_PRECISION = "; if it is finite without --tpu-numerics, a matrix product in the model needs precision='highest'"


def note_numerics(report: StageReport, found: Contractions) -> None:
    """Reports the numerics of a run that rounds as a TPU does.

    Args:
      report: the report of a stage that executed steps.
      found: the matrix products of the run so far.
    """
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
