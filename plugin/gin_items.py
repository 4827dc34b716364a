"""Gin files as pytest items: which files become runs, and one item for each stage of a run."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from t5x_harness.promotion.marker import AOT, SMOKE, TPU, selects, selects_only
from t5x_harness.runs.stages import StageFailed, stages_of
from t5x_harness.settings.configuration import require_matches
from t5x_harness.settings.session import CollectedRun
from t5x_harness.spec import Location, Outcome, RunSpec, Stage
from t5x_harness.upstream.pytest import skip_at_item
from t5x_harness.vertex.target import VertexTarget

from . import marks
from .promotion import PROMOTION, JobItem, promotion_of
from .reports import failure_of, record
from .session import SESSION, HarnessSession, usage_errors

if TYPE_CHECKING:
    from t5x_harness.runs.session import PendingRun


class RunCollector(pytest.Collector):
    """A run, whose children are its stages."""

    run: CollectedRun

    def collect(self) -> Iterator[StageItem]:
        """Yields an item for each stage that a run of this mode has.

        Raises:
          pytest.Collector.CollectError: a gin file was named that is only meant to be included.
        """
        if self.run.problem:
            raise self.CollectError(self.run.problem)
        for stage in stages_of(self.run.spec):
            item: StageItem = StageItem.from_parent(self, name=stage.value)
            item.spec, item.stage, item.start = self.run.spec, stage, self.run.start
            yield item


class GinFile(RunCollector, pytest.File):
    """A gin file that binds a run."""


class DeclaredRuns(pytest.File):
    """The runs that ``[[tool.t5x_harness.runs]]`` in a pyproject.toml declares."""

    def collect(self) -> Iterator[RunCollector]:
        """Yields a collector for each run, which has the run's name."""
        for run in self.config.stash[SESSION].settings.declared_runs():
            node: RunCollector = RunCollector.from_parent(self, name=run.name)
            node.run = run
            yield node


class StageItem(JobItem):
    """Runs one stage, and the earlier ones that it needs if they were not selected."""

    spec: RunSpec
    stage: Stage
    start: Location | None
    _target: VertexTarget

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if self.name == Stage.AOT:
            self.add_marker(AOT)
            return
        self.add_marker(SMOKE)
        with usage_errors():
            if self.config.stash[PROMOTION].settings.defaults:  # configs have no markers
                self.add_marker(TPU)

    def setup(self) -> None:
        """Finds where the run's job goes, if the run is promoted; a conftest's fixture may determine it.

        A stage that cannot be compiled here is skipped before anything is run for it.
        """
        if self.stage is Stage.AOT and (why := self.config.stash[SESSION].why_not_compiled):
            skip_at_item(why)
        if promotion := promotion_of(self):
            self._target = promotion.targets.of(self)

    def runtest(self) -> None:
        """Runs the stage.

        Raises:
          StageFailed: the stage failed, or an earlier one without a selected item did.
        """
        from t5x_harness.report.junit import stage_properties
        from t5x_harness.runs.pool import RunContext

        session = self.config.stash[SESSION]
        promotion = promotion_of(self)
        promote = promotion.for_run(self, self.spec, self._target) if promotion else None
        context = RunContext(marks.network_allowed(self), session.settings.fake_buckets, promote)
        origin = self.parent.nodeid if self.parent is not None else self.nodeid
        with session.working() as runs:
            result = runs.stage(self.spec, self.stage, context, origin=origin, pending=self.pending_runs)
        if promotion and self in promotion.early and promotion.jobs.has_room:
            runs.submit_early(self.spec)
        marks.count(self, marks.EXERCISED, result.exercised)
        # pytest's own duration is the time it waited, which is shorter if the run worked ahead.
        self.user_properties += [("t5x.stage", self.stage.value), ("t5x.seconds", f"{result.seconds:.3f}")]
        record(self, result, stage_properties(result))
        cause = runs.failed_before(self.spec, result)
        if cause is not None:
            if any(getattr(i, "spec", None) == self.spec and i.name == cause.stage for i in self.session.items):
                skip_at_item(f"not run: {cause.stage} failed")
            record(self, cause, stage_properties(cause))
            raise StageFailed(cause)
        if result.outcome is Outcome.NOT_RUN:  # the job does not run this stage, or is not sent
            skip_at_item("; ".join(result.not_checked))
        if result.outcome is not Outcome.PASSED:
            raise StageFailed(result)

    def pending_runs(self) -> list[PendingRun]:
        """Returns the runs that begin at or after this item, up to the next item that is not a stage.

        A run takes over this process's environment and folder when it starts. A test may change them, so no run starts
        while a test runs. A run also waits for its turn if one of its stages has run already, will be skipped, or comes
        after a test.
        """
        from t5x_harness.runs.session import PendingRun

        items = self.session.items
        of_all = Counter(each.spec for each in items if isinstance(each, StageItem))
        found: dict[RunSpec, PendingRun] = {}
        for each in itertools.takewhile(lambda each: isinstance(each, StageItem), items[items.index(self) :]):
            assert isinstance(each, StageItem)
            run = found.setdefault(each.spec, PendingRun(each.spec, marks.network_allowed(each), []))
            if not any(map(each.get_closest_marker, ("skip", "skipif"))):
                run.stages.append(each.stage)
        return [run for run in found.values() if len(run.stages) == of_all[run.spec]]

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Returns the findings of a failed stage, and the traceback of any other exception."""
        if isinstance(excinfo.value, StageFailed):
            return failure_of(self, excinfo.value.result)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        """Returns the line that makes the file a run, to which editors and annotations jump."""
        title = f"gin: {self.spec.name}::{self.stage}"
        if self.start is None:
            return self.path, 0, title
        return Path(self.start.file), self.start.line - 1, title


def leave(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Ends the run of an item unless the next item is a further stage of it."""
    runs = item.config.stash[SESSION].begun
    if isinstance(item, StageItem) and runs is not None and getattr(nextitem, "spec", None) != item.spec:
        runs.leave(item.spec)


_PYPROJECT = "pyproject.toml"


def add_declared_runs(config: pytest.Config, session: HarnessSession) -> None:
    """Adds declared runs and globbed gin files to a call of pytest that asks for configs but names no files itself."""
    if not _names_files(config) and _asks_for_configs(config):
        settings, own = session.settings, session.settings.configuration
        with usage_errors():
            require_matches(own.cwd, own.project.gin_files, own.given("gin_files") or ())
        config.args.extend(path for path in map(str, settings.configured_files()) if path not in config.args)


def header(config: pytest.Config, session: HarnessSession) -> list[str]:
    """Returns the header's lines: versions, runtime and slice if they are used, and the configs that are left out."""
    paths = [] if _asks_for_configs(config) else session.settings.configured_files()
    if _names_files(config):
        folders = [config.invocation_params.dir / argument for argument in config.args]
        paths = [path for path in paths if any(path.is_relative_to(folder) for folder in folders)]
        paths = [path for path in paths if not _named_on_command_line(path, config)]
    lines = [*([session.settings.header()] if session.expects_runs else []), *session.settings.left_out(paths)]
    if not _names_files(config) and _asks_for_configs(config):
        lines += session.settings.left_open(session.settings.configured_files())
    if session.settings.configuration.given("aot") and not selects(session.expression, AOT):
        lines.append(f"t5x-harness: -m {session.expression!r} leaves the stage {AOT} out; 'or {AOT}' runs it, too")
    return lines


def collect_file(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Returns a collector for a run config or for declared runs; None for every other file."""
    config = parent.config
    session = config.stash[SESSION]
    declares = path.name == _PYPROJECT and path.parent == config.rootpath and bool(session.settings.project.runs)
    if not declares and path.suffix != ".gin":
        return None
    named = _named_on_command_line(path, config)
    if not named and not _asks_for_configs(config):
        return None  # pytest found it in a folder
    if declares:
        return DeclaredRuns.from_parent(parent, path=path)
    # If pytest was called on a folder with the file, the user must mean such files.
    wanted = named or _names_files(config) or session.settings.is_configured(path)
    run = session.settings.run_of(path, named=named or session.settings.is_named(path)) if wanted else None
    if run is None:
        return None
    node: GinFile = GinFile.from_parent(parent, path=path)
    node.run = run
    return node


def _asks_for_configs(config: pytest.Config) -> bool:
    """Returns whether ``-m`` selects configs by their marks; by ``tpu`` only if the project names resources."""
    promotion = config.stash[PROMOTION]
    expression = config.stash[SESSION].expression
    marked = any(selects_only(expression, mark) for mark in (SMOKE, AOT))
    return marked or (promotion.active and bool(promotion.settings.defaults))


def _names_files(config: pytest.Config) -> bool:
    return config.args_source is config.ArgsSource.ARGS


def _named_on_command_line(path: Path, config: pytest.Config) -> bool:
    return any(
        (config.invocation_params.dir / arg.partition("::")[0]).resolve() == path.resolve() for arg in config.args
    )
