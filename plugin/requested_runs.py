"""The runs that tests request with ``t5x_run``, and the runs of their auxiliary jobs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

from t5x_harness.fixtures.runs import fail_at_marker
from t5x_harness.fixtures.vertex import checked
from t5x_harness.promotion.marker import TPU, ResourcesError
from t5x_harness.promotion.settings import NOT_SENT
from t5x_harness.settings.auxiliary import Auxiliary
from t5x_harness.settings.forms import Layer
from t5x_harness.spec import AotMode, Mode, Outcome, RunResult, RunSpec, Stage
from t5x_harness.upstream.pytest import skip_at_item

from . import marks
from .promotion import promotion_of
from .reports import columns_of, record
from .session import SESSION

if TYPE_CHECKING:
    from t5x_harness.aot.numbers import AotNumbers


def run_for(
    request: pytest.FixtureRequest,
    gin_files: Sequence[str],
    asked: Layer,
    *,
    until: Stage | None,
    check: bool,
    auxiliary: Sequence[Auxiliary],
) -> RunResult:
    """Runs a config for a test, here or as the job that it is promoted to; see ``fixtures.runs.T5XRun``."""
    item: pytest.Item = request.node
    spec = request.config.stash[SESSION].settings.spec(gin_files, asked).with_settings(until=until)
    if fault := marks.no_slice(spec.slice):
        pytest.fail(f"t5x_run: slice {fault}", pytrace=False)
    jobs = auxiliary or _marked(item, spec)
    if not jobs:
        return _run(request, spec, check=check, until=until)
    from t5x_harness.auxiliary.session_runs import check_auxiliary

    marks.count(item, marks.AUXILIARY_RUNS, 0)
    with _auxiliary_errors():
        check_auxiliary(spec, jobs)  # cheap, unlike training
    result = _run(request, spec, check=check, until=until)
    for each in jobs if result.passed else ():
        result = run_auxiliary_for(request, result, each, check)
    return result


def run_auxiliary_for(
    request: pytest.FixtureRequest, trained: RunResult, jobs: Auxiliary, check: bool = True
) -> RunResult:
    """Runs the auxiliary jobs of a train job; see ``fixtures.runs.AuxiliaryJobs``."""
    from t5x_harness.auxiliary.session_runs import run_auxiliary

    item: pytest.Item = request.node
    project = checked(request.getfixturevalue("vertex_target")).project if promotion_of(item) else None
    with _auxiliary_errors():
        result = run_auxiliary(trained, jobs, lambda spec: _run(request, spec, check=check, trained=trained), project)
    marks.count(item, marks.AUXILIARY_RUNS, len(result.auxiliary) - len(trained.auxiliary))
    return result


def compile_for(request: pytest.FixtureRequest, gin_files: Sequence[str], asked: Layer, mode: AotMode) -> AotNumbers:
    """Compiles a config's programs for a test; see ``fixtures.runs.T5XAot``."""
    from t5x_harness.aot.numbers import AotNumbers
    from t5x_harness.aot.stage import TOO_LARGE
    from t5x_harness.report.junit import stage_properties
    from t5x_harness.report.terminal import run_failure
    from t5x_harness.runs.pool import RunContext

    session = request.config.stash[SESSION]
    item: pytest.Item = request.node
    if why := session.why_not_compiled:
        pytest.skip(why)
    spec = session.settings.spec(gin_files, asked).with_settings(aot=mode, until=Stage.AOT)
    if fault := marks.no_slice(spec.slice):
        pytest.fail(f"t5x_aot: slice {fault}", pytrace=False)
    context = RunContext(marks.network_allowed(item), session.settings.fake_buckets)
    with session.working() as runs:
        result = runs.run(spec, context, origin=item.nodeid, may_fail=True)
    compiled = result.stages[-1]
    is_compiled = compiled.stage is Stage.AOT and compiled.outcome is not Outcome.NOT_RUN
    if not is_compiled or any(finding.code != TOO_LARGE for finding in compiled.errors):
        pytest.fail(run_failure(result, width=columns_of(request.config)[1]), pytrace=False)
    if promotion_of(item) is None:  # a promoted test's work is done in its job
        marks.count(item, marks.EXERCISED, compiled.exercised)
    record(item, compiled, stage_properties(compiled))
    return AotNumbers(compiled)


def _marked(item: pytest.Item, spec: RunSpec) -> tuple[Auxiliary, ...]:
    """Returns the jobs that the test's markers request, if the run trains."""
    jobs = marks.auxiliary_jobs(item)
    if not jobs:
        return ()
    from t5x_harness.gin.reading import program_of

    return jobs if (spec.mode or program_of(spec).mode) is Mode.TRAIN else ()


def _run(
    request: pytest.FixtureRequest,
    spec: RunSpec,
    *,
    check: bool,
    until: Stage | None = None,
    trained: RunResult | None = None,
) -> RunResult:
    """Runs a config, to its end or to a stage, or a job for a checkpoint of a run that trained."""
    from t5x_harness.findings.work import work_of
    from t5x_harness.promotion.order import planned
    from t5x_harness.report.junit import job_lines, job_properties
    from t5x_harness.report.terminal import run_failure
    from t5x_harness.runs.pool import RunContext

    session = request.config.stash[SESSION]
    item: pytest.Item = request.node
    promote = None
    if promotion := promotion_of(item):
        target = checked(request.getfixturevalue("vertex_target"))
        try:
            resources, own = promotion.resources(item), None
            if trained is not None:
                resources = own = resources.for_auxiliary(own_slice=spec.slice != trained.spec.slice)
            spec = planned(spec, resources)
            promotion.check_order(item, resources, spec.slice, target)
            promote = promotion.for_run(item, spec, target, own)
        except ResourcesError as error:
            fail_at_marker(item, TPU, f"@pytest.mark.tpu: {error}")
    context = RunContext(marks.network_allowed(item), session.settings.fake_buckets, promote)
    try:
        with session.working() as runs:
            result = runs.run(spec, context, origin=item.nodeid, may_fail=not check)
    except pytest.fail.Exception as cut:  # such as pytest-timeout's limit
        raise pytest.fail.Exception(f"{spec.name} was ended from outside: {cut}", pytrace=False) from None
    marks.count(item, marks.EXERCISED, work_of(result, until))
    for stage in result.stages if promotion else ():
        record(item, stage, job_properties(stage))
        marks.count(item, marks.JOBS, bool(job_lines(stage)))
    if check and not result.passed:
        pytest.fail(run_failure(result, width=columns_of(request.config)[1]), pytrace=False)
    if check and not promotion and not work_of(result, until):
        why = "; ".join(text for stage in result.stages for text in stage.not_checked if "not run" in text)
        last = until or "a stage that executes it"
        pytest.fail(f"{spec.name} did not come to {last}: {why or 'it has none'}", pytrace=False)
    if promotion and promotion.settings.dry_run:
        skip_at_item(NOT_SENT)
    return result


@contextlib.contextmanager
def _auxiliary_errors() -> Iterator[None]:
    """Fails the test without a traceback if its auxiliary jobs are wrong or their results cannot be stored."""
    from t5x_harness.auxiliary.jobs import AuxiliaryError
    from t5x_harness.buckets.folders import StorageError

    try:
        yield
    except (AuxiliaryError, StorageError) as error:
        raise pytest.fail.Exception(f"auxiliary jobs: {error}", pytrace=False) from None
