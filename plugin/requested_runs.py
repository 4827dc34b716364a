"""The runs that tests ask ``t5x_run`` for."""

from __future__ import annotations

import pytest

from t5x_harness.fixtures.vertex_target import checked
from t5x_harness.promotion.settings import NOT_SENT
from t5x_harness.settings.requested import RequestedRun
from t5x_harness.spec import RunResult
from t5x_harness.upstream.pytest import skip_at_item

from . import marks
from .promotion import promotion_of
from .reports import columns_of, record
from .session import SESSION


def run_for(request: pytest.FixtureRequest, asked: RequestedRun) -> RunResult:
    """Runs a config for a test, here or as the job that it is promoted to: see ``fixtures.runs.T5XRun``."""
    from t5x_harness.promotion.order import planned
    from t5x_harness.promotion.resources import ResourcesError
    from t5x_harness.report.properties import job_properties
    from t5x_harness.report.terminal import run_failure
    from t5x_harness.runs.pool import RunContext

    session = request.config.stash[SESSION]
    item: pytest.Item = request.node
    spec = asked.spec(session, marks.slice_name(item))
    marks.check_slice(spec.slice, "t5x_run: slice")
    promote = None
    if promotion := promotion_of(item):
        target = checked(request.getfixturevalue("vertex_target"))
        try:
            spec = planned(spec, promotion.resources(item))
            promote = promotion.for_run(item, spec, target)
        except ResourcesError as error:
            raise pytest.fail.Exception(f"@pytest.mark.tpu: {error}", pytrace=False) from None
    context = RunContext(marks.network_allowed(item), session.fake_buckets, promote)
    with session.working() as runs:
        result = runs.run(spec, context, origin=item.nodeid, may_fail=not asked.check)
    marks.count_exercise(item, sum(stage.exercised for stage in result.stages))
    for stage in result.stages if promotion else ():
        record(item, stage, job_properties(stage))
    if asked.check and not result.passed:
        pytest.fail(run_failure(result, width=columns_of(request.config)[1]), pytrace=False)
    if promotion and promotion.settings.dry_run:
        skip_at_item(NOT_SENT)
    return result
