"""What a pod adds to the result of a stage."""

import dataclasses
from pathlib import Path

from t5x_harness.execute.host_files import RECORD
from t5x_harness.findings.silencing import split_silenced
from t5x_harness.findings.work import judged
from t5x_harness.pods.start import memory_of
from t5x_harness.resume.agreement import disagreements
from t5x_harness.slices.slice import get_slice
from t5x_harness.spec import Outcome, RunSpec, Stage, StageResult


def of_pod(result: StageResult, spec: RunSpec, workspace: Path) -> StageResult:
    """Adds the number of hosts to the plan, and to the training what the records of the hosts show.

    Args:
      result: the result of a stage on a pod.
      spec: the run.
      workspace: the run's folder.
    """
    if result.stage is Stage.PLAN:
        hosts = ("hosts", memory_of(get_slice(spec.slice).hosts))
        return dataclasses.replace(result, facts=(*result.facts, hosts))
    if result.stage is not Stage.TRAIN or result.outcome is not Outcome.PASSED:
        return result
    found, silenced = split_silenced([*disagreements(workspace / RECORD, result.stage)], spec.settings.ignore, spec.cwd)
    findings = (*result.findings, *found)
    return judged(dataclasses.replace(result, findings=findings, silenced=(*result.silenced, *silenced)))
