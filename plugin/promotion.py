"""Tests marked ``tpu`` that ``-m`` promotes: which they are, where they run, and their jobs."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

from t5x_harness.promotion.expression import TPU
from t5x_harness.promotion.resources import ResourcesError, TpuResources
from t5x_harness.promotion.session import EmulationError, PromotionSession
from t5x_harness.promotion.settings import NOT_SENT, PromotionSettings
from t5x_harness.runs.stages import BEFORE_EXECUTION
from t5x_harness.spec import RunSpec
from t5x_harness.vertex.emulated import is_led_to_private_google
from t5x_harness.vertex.target import VertexTarget

from . import marks
from .promotion_options import read_settings, read_target
from .session import HarnessSession
from .targets import TargetsOfConftests

if TYPE_CHECKING:
    from t5x_harness.promotion.jobs import PromotedJobs
    from t5x_harness.promotion.order import JobOrder
    from t5x_harness.runs.pipeline import BackendFactory
    from t5x_harness.vertex.machine import Machine

__all__ = ["NOT_SENT", "PROMOTION", "Promotion", "promotion_of"]

PROMOTION = pytest.StashKey["Promotion"]()


def promotion_of(item: pytest.Item) -> Promotion | None:
    """The session's promotion, if this test is promoted by it."""
    promotion = item.config.stash[PROMOTION]
    return promotion if promotion.promotes(item) else None


class Promotion:
    """What this session promotes; settings are read when something is.

    Args:
      config: pytest's.
      session: the harness's.
    """

    def __init__(self, config: pytest.Config, session: HarnessSession) -> None:
        self.config = config
        self._session = session
        self.active = session.promotes
        self.shared = PromotionSession()
        self._early: set[pytest.Item] = set()
        self._targets = TargetsOfConftests()

    @functools.cached_property
    def settings(self) -> PromotionSettings:
        """How promoted tests run.

        Raises:
          pytest.UsageError: a value is none of those that there are.
        """
        return read_settings(self.config, self._session.project.tpu)

    @functools.cached_property
    def target(self) -> VertexTarget:
        """Where the jobs go of items that no conftest's fixture says more for.

        Raises:
          pytest.UsageError: values are missing, or one is wrong.
        """
        return read_target(self.config, self.settings, self._session.project.vertex)

    @property
    def names_resources(self) -> bool:
        """Whether the project or the ini file says what configs, which have no markers, are promoted to."""
        return bool(self.settings.defaults)

    @property
    def jobs(self) -> PromotedJobs:
        """The session's jobs."""
        # As with the output of tests, -s shows it as it comes; xdist's workers have no terminal.
        streams = self.config.option.capture == "no" and not hasattr(self.config, "workerinput")
        return self.shared.jobs(self.settings, self._session.progress.say if streams else None)

    def check_options(self) -> None:
        """Checks the options before pytest collects anything, in a session that promotes.

        Raises:
          pytest.UsageError: a value is none of those that there are.
        """
        if self.active:
            _ = self.settings

    def promotes(self, item: pytest.Item) -> bool:
        """Whether a test is promoted; its mark is inert otherwise."""
        return self.active and item.get_closest_marker(TPU) is not None

    def check(self, items: Sequence[pytest.Item]) -> None:
        """Checks that there is a target for the promoted ones of the selected tests; the emulated Vertex AI starts.

        Raises:
          pytest.UsageError: values are missing, all of which the message names.
        """
        promoted = [item for item in items if self.promotes(item)]
        if any(not self._targets.overrides(item) for item in promoted):
            _ = self.target
        needed = promoted and self.settings.emulated and not self.settings.dry_run
        if needed and not self.config.option.collectonly:
            self._emulate(promoted)

    def header(self) -> list[str]:
        """What ``-m`` means for tests marked ``tpu``, where it names them."""
        expression = self.config.option.markexpr or ""
        if not self.active:
            if marks.selects_only(expression, TPU):
                return [
                    f"t5x-harness: -m {expression!r} also selects tests that are not marked {TPU}, so none is promoted "
                    "to a TPU job: all run here"
                ]
            return []
        try:
            where = f"project {self.target.project}, {self.target.location}, image {self.target.image}"
        except pytest.UsageError:
            where = "no target is configured"
        here = self.settings.emulated or is_led_to_private_google(os.environ)
        service = "an emulated Vertex AI on this machine" if here else "Vertex AI"
        dry = "; --t5x-tpu-dry-run sends none" if self.settings.dry_run else ""
        return [f"t5x-harness: -m {expression!r} promotes tests marked {TPU} to jobs on {service} ({where}){dry}"]

    def resources(self, item: pytest.Item) -> TpuResources:
        """What a test asks for.

        Raises:
          ResourcesError: its marker has a mistake in it.
        """
        return marks.tpu_resources(item, self.settings.defaults)

    def target_of(self, item: pytest.Item) -> VertexTarget:
        """Where the job goes of an item without fixtures: a gin config, or a shipped test.

        Fails the item, without a traceback, if a conftest's fixture gives no target.

        Args:
          item: one that is being set up, or runs, if :meth:`knows_target` is false of it.
        """
        return self._targets.of(item) if self._targets.overrides(item) else self.target

    def knows_target(self, item: pytest.Item) -> bool:
        """Whether :meth:`target_of` answers before an item is set up."""
        return not self._targets.overrides(item) or self._targets.known(item)

    def order(self, item: pytest.Item, slice_name: str, target: VertexTarget) -> JobOrder:
        """A test's order for a job.

        Args:
          item: the test.
          slice_name: the slice that smoke emulates for it.
          target: where the job goes.

        Raises:
          ResourcesError: nothing, or only a half of it, says what to run on.
        """
        from t5x_harness.promotion.order import order_of

        name = item.name if not hasattr(item, "spec") else item.spec.name
        return order_of(name, self.resources(item), self.settings, target, slice_name)

    def planned(self, item: pytest.Item, spec: RunSpec) -> RunSpec:
        """A run as it is planned for its job: on the slice that the job has.

        Raises:
          ResourcesError: see :meth:`order`.
        """
        from t5x_harness.promotion.order import planned

        return planned(spec, self.resources(item))

    def for_run(self, item: pytest.Item, spec: RunSpec, target: VertexTarget) -> BackendFactory:
        """What makes the backend of a promoted run.

        Args:
          item: the test that the run is for.
          spec: of :meth:`planned`.
          target: where the job goes.
        """
        from t5x_harness.runs.vertex import backend_factory

        return backend_factory(self.order(item, spec.slice, target), spec, lambda: self.jobs)

    def plan_early(self, items: Sequence[pytest.Item]) -> None:
        """Notes the items after which their runs' jobs are sent, as those that wait for these come later."""
        self._early = set(items)

    def submits_early(self, item: pytest.Item) -> bool:
        """Whether a run's job is sent after this stage of it, while other runs' stages follow."""
        return item in self._early and self.jobs.has_room

    def _emulate(self, promoted: Sequence[pytest.Item]) -> None:
        source = self._session.options.gcs_root or self._session.project.gcs_root
        try:
            self.shared.emulate(source, self.target.image, [*self._machines(promoted)])
        except EmulationError as error:
            raise pytest.UsageError(f"--t5x-vertex=emulated: {error}") from None
        self._session.take_surroundings()

    def _machines(self, items: Sequence[pytest.Item]) -> Iterator[Machine]:
        """The machines of the jobs that will run T5X, as far as is known before; an item's mistake is told later."""
        from t5x_harness.promotion.order import machine_of

        seen: set[RunSpec] = set()
        for item in items:
            spec = getattr(item, "spec", None)
            if spec is not None and (item.name in BEFORE_EXECUTION or spec in seen):
                continue
            if spec is None and "t5x_run" not in getattr(item, "fixturenames", ()):
                continue
            seen.update([spec] if spec is not None else [])
            try:
                asked = self.resources(item)
                if not asked.ship or spec is not None:
                    own = marks.slice_name(item) if spec is None else spec.slice
                    yield machine_of(asked, own or self._session.slice_name)
            except (ResourcesError, pytest.fail.Exception):
                continue
