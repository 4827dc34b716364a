"""One pytest item for each stage of a run, collected from a gin file or from a declared run."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from t5x_harness.promotion.expression import TPU
from t5x_harness.runs.stages import BEFORE_EXECUTION, stages_of
from t5x_harness.spec import Location, Outcome, RunSpec, Stage, StageResult
from t5x_harness.vertex.target import VertexTarget

from . import marks
from ._pytest_internals import skip_at_item
from .failures import failure_of
from .job_sections import tell_job
from .promotion import PROMOTION, promotion_of
from .session import SESSION

if TYPE_CHECKING:
    from t5x_harness.runs.prefetch import PendingRun


class StageFailed(Exception):
    """A stage of a run failed; the result says why."""

    def __init__(self, result: StageResult) -> None:
        super().__init__(f"{result.stage} failed")
        self.result = result


class GinFile(pytest.File):
    """A gin file that binds a run: its children are the stages."""

    spec: RunSpec
    start: Location | None

    @classmethod
    def of(cls, parent: pytest.Collector, path: Path, spec: RunSpec, start: Location | None) -> GinFile:
        """A collector for the run that the file at ``path`` binds; ``start`` is the statement that makes it a run."""
        node: GinFile = cls.from_parent(parent, path=path)
        node.spec, node.start = spec, start
        return node

    def collect(self) -> Iterable[StageItem]:
        """The stages of the run."""
        return stage_items(self, self.spec, self.start)


class NoRun(pytest.File):
    """A gin file that the command line names, though it is there only to be included."""

    reason: str

    @classmethod
    def of(cls, parent: pytest.Collector, path: Path, reason: str) -> NoRun:
        """A collector that fails for a reason, such as ``model.gin is no run config: it binds none of ...``."""
        node: NoRun = cls.from_parent(parent, path=path)
        node.reason = reason.replace(str(path), os.path.relpath(path, parent.config.invocation_params.dir))
        return node

    def collect(self) -> Iterable[StageItem]:
        """Gives the reason.

        Raises:
          pytest.Collector.CollectError: always.
        """
        raise self.CollectError(
            f"{self.reason}\n    fix: name the config that includes it; or declare a run of several files, "
            "[[tool.t5x_harness.runs]] in pyproject.toml"
        )


class DeclaredRuns(pytest.File):
    """The ``[[tool.t5x_harness.runs]]`` of a pyproject.toml."""

    runs: tuple[tuple[str, RunSpec, Location], ...]

    def collect(self) -> Iterable[pytest.Collector]:
        """One collector for each run, by its name."""
        for name, spec, where in self.runs:
            node: DeclaredRun = DeclaredRun.from_parent(self, name=name)
            node.spec, node.start = spec, where
            yield node


class DeclaredRun(pytest.Collector):
    """One declared run."""

    spec: RunSpec
    start: Location

    def collect(self) -> Iterable[StageItem]:
        """The stages of the run."""
        return stage_items(self, self.spec, self.start)


def stage_items(parent: pytest.Collector, spec: RunSpec, start: Location | None) -> Iterable[StageItem]:
    """An item for each stage that a run of this mode has."""
    for stage in stages_of(spec.mode, spec.until):
        item: StageItem = StageItem.from_parent(parent, name=stage.value)
        item.spec, item.stage, item.start = spec, stage, start
        yield item


class StageItem(pytest.Item):
    """Runs one stage, and the earlier ones it needs if they were not selected."""

    spec: RunSpec
    stage: Stage
    start: Location | None
    _target: VertexTarget

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_marker(marks.SMOKE)
        if self.config.stash[PROMOTION].names_resources:
            self.add_marker(TPU)

    def setup(self) -> None:
        """Finds where its run's job goes, if it is promoted: a conftest's fixture may say."""
        if promotion := promotion_of(self):
            self._target = promotion.target_of(self)

    @property
    def needs_worker(self) -> bool:
        """Lint is done by reading alone."""
        return self.stage is not Stage.LINT

    def runtest(self) -> None:
        """Runs the stage.

        Raises:
          StageFailed: it failed, or an earlier stage that no selected item stands for.
        """
        session = self.config.stash[SESSION]
        promotion = promotion_of(self)
        context = session.context_of(self, promotion.for_run(self, self.spec, self._target) if promotion else None)
        origin = self.parent.nodeid if self.parent is not None else self.nodeid
        with session.working() as runs:
            if promotion is None:
                runs.prefetch(self.spec, self.pending_runs, buckets=context.buckets)
            elif self.stage not in BEFORE_EXECUTION:
                runs.waits_for_job(self.spec)
            result = runs.stage(self.spec, self.stage, context, origin=origin)
        if promotion and promotion.submits_early(self):
            runs.submit_early(self.spec)
        marks.count_exercise(self, result.exercised)
        # pytest's own duration is how long was waited for it, which is less where the run worked ahead.
        self.user_properties += [("t5x.stage", self.stage.value), ("t5x.seconds", f"{result.seconds:.3f}")]
        self._record(result)
        cause = runs.failed_before(self.spec, result)
        if cause is not None:
            if any(getattr(i, "spec", None) == self.spec and i.name == cause.stage for i in self.session.items):
                skip_at_item(f"not run: {cause.stage} failed")
            self._record(cause)
            raise StageFailed(cause)
        if result.outcome is Outcome.NOT_RUN:  # a job does not do it, or is not sent
            skip_at_item("; ".join(result.not_checked))
        if result.outcome is not Outcome.PASSED:
            raise StageFailed(result)

    def pending_runs(self) -> list[PendingRun]:
        """The runs that begin with or after this item, up to the next item that is no stage.

        A test may change the environment and the folder of this process, which a run takes over when it starts, so none
        starts while one runs. Nor is a run begun of which a stage was run already, will be skipped, or comes after a
        test.
        """
        from t5x_harness.runs.prefetch import PendingRun

        items = self.session.items
        of_all = Counter(each.spec for each in items if isinstance(each, StageItem))
        found: dict[RunSpec, PendingRun] = {}
        for each in itertools.takewhile(lambda each: isinstance(each, StageItem), items[items.index(self) :]):
            assert isinstance(each, StageItem)
            run = found.setdefault(each.spec, PendingRun(each.spec, marks.network_allowed(each), []))
            if not any(map(each.get_closest_marker, ("skip", "skipif"))):
                run.stages.append(each.stage)
        return [run for run in found.values() if len(run.stages) == of_all[run.spec]]

    def _record(self, result: StageResult) -> None:
        """Puts numbers, facts and findings where JUnit and other reporters find them."""
        from t5x_harness.report.properties import finding_properties, stage_properties

        self.user_properties += stage_properties(result)
        tell_job(self, result)
        self.user_properties += finding_properties(result)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The findings instead of a traceback; the traceback of anything unforeseen."""
        if isinstance(excinfo.value, StageFailed):
            return failure_of(self, excinfo.value.result)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        """The line that makes the file a run, so that editors and annotations jump to it."""
        title = f"gin: {self.spec.name}::{self.stage}"
        if self.start is None:
            return self.path, 0, title
        return Path(self.start.file), self.start.line - 1, title


def leave(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Ends the run of an item unless the next one is a further stage of it."""
    runs = item.config.stash[SESSION].begun
    if isinstance(item, StageItem) and runs is not None and getattr(nextitem, "spec", None) != item.spec:
        runs.leave(item.spec)
