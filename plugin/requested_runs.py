"""The runs that tests ask ``t5x_run`` for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from t5x_harness.fixtures.runs import Configured, Paths
from t5x_harness.spec import Mode, RunResult

from . import marks
from ._pytest_internals import skip_at_item
from .failures import width_of
from .job_sections import record_jobs
from .promotion import NOT_SENT, promotion_of
from .session import SESSION
from .targets import checked

if TYPE_CHECKING:
    from t5x_harness.fixtures.tasks import TinyTask

__all__ = ["run_for"]


def run_for(
    request: pytest.FixtureRequest,
    configured: Configured,
    gin: Paths,
    *,
    mode: Mode | str | None = None,
    bindings: Sequence[str] = (),
    slice: str | None = None,
    task: TinyTask | None = None,
    search_paths: Sequence[str | os.PathLike[str]] = (),
    full_size: bool = False,
    full_mesh: bool = False,
    check: bool = True,
) -> RunResult:
    """Runs a config for a test, here or as the job that it is promoted to: see ``fixtures.runs.T5XRun``."""
    from t5x_harness.promotion.resources import ResourcesError
    from t5x_harness.report.terminal import run_failure

    session = request.config.stash[SESSION]
    item: pytest.Item = request.node
    files = [gin] if isinstance(gin, str | os.PathLike) else list(gin)
    base = session.spec([_gin_file(file) for file in files])
    task_bindings, task_path = (task.bindings, (task.folder,)) if task else ((), ())
    spec = session.spec(
        base.gin_files,
        mode=Mode(mode) if mode else None,
        bindings=(*base.bindings, *configured.bindings, *task_bindings, *bindings),
        slice=slice or marks.slice_name(item) or configured.slice or base.slice,
        search_paths=(*map(str, search_paths), *map(str, configured.search_paths), *base.search_paths),
        python_path=(*task_path, *base.python_path),
        full_size=full_size or base.full_size,
        full_mesh=full_mesh or base.full_mesh,
        samples=_samples(configured.samples, base.samples),
    )
    if problem := marks.slice_problem(spec.slice):
        pytest.fail(f"t5x_run: slice {problem}", pytrace=False)
    promote = None
    if promotion := promotion_of(item):
        target = checked(request.getfixturevalue("vertex_target"))
        try:
            spec = promotion.planned(item, spec)
            promote = promotion.for_run(item, spec, target)
        except ResourcesError as error:
            raise pytest.fail.Exception(f"@pytest.mark.tpu: {error}", pytrace=False) from None
    context = session.context_of(item, promote)
    with session.working() as runs:
        result = runs.run(spec, context, origin=item.nodeid, may_fail=not check)
    marks.count_exercise(item, sum(stage.exercised for stage in result.stages))
    if promotion:
        record_jobs(item, result)
    if check and not result.passed:
        pytest.fail(run_failure(result, width=width_of(request.config)), pytrace=False)
    if promotion and promotion.settings.dry_run:
        skip_at_item(NOT_SENT)
    return result


def _gin_file(file: str | os.PathLike[str]) -> str:
    """Returns a name as a spec has it; gs:// would lose one of its slashes in a Path."""
    name = os.fspath(file)
    return name if "://" in name else str(Path(name))


def _samples(own: Mapping[str, Mapping[str, Any]], of_project: Sequence[str]) -> tuple[str, ...]:
    """Returns the rows that a test declares, before those of the project: of one name, the first count."""
    from t5x_harness.standins.rows import Samples

    return (*(Samples(name, splits).to_text() for name, splits in own.items()), *of_project)
