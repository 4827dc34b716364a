"""Plans auxiliary jobs on their slice before the first one starts: a mistake in one job is in all of them."""

from __future__ import annotations

from t5x_harness.auxiliary.jobs import JobTemplate
from t5x_harness.runs.several import plan_specs
from t5x_harness.spec import RunResult

_ANY_STEP = 1


def plan_jobs(template: JobTemplate, last_step: int | None = None) -> list[RunResult]:
    """Lints, resolves and plans one job for each mixture; jobs of modules that are not part of T5X have no plan.

    Args:
      template: what the jobs have in common.
      last_step: of the train job; the checkpoint need not exist yet.
    """
    if template.mode is None:
        return []
    step = last_step or _ANY_STEP
    checkpoint = f"{template.model_dir}/checkpoint_{step}"
    return plan_specs([template.job(checkpoint, step, mixture).spec for mixture in template.request.mixtures])
