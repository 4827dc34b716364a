"""The promotion of tests marked ``tpu`` by ``-m``: which tests, to which target, on which machines."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

from t5x_harness.fixtures.runs import slice_name
from t5x_harness.fixtures.vertex import Targets
from t5x_harness.promotion.marker import SMOKE, TPU, ResourcesError, TpuResources
from t5x_harness.promotion.session import PromotionSession
from t5x_harness.settings.options import option_of
from t5x_harness.spec import RunSpec, Stage
from t5x_harness.vertex.target import VertexTarget

from . import marks
from .session import HarnessSession, job_settings

if TYPE_CHECKING:
    from t5x_harness.runs.job import JobExecutor
    from t5x_harness.runs.local import LocalExecutor
    from t5x_harness.vertex.machine import Machine

PROMOTION = pytest.StashKey["Promotion"]()


class JobItem(pytest.Item):
    """An item that is itself a job if it is promoted; other tests send jobs by calling ``t5x_run``."""


def promotion_of(item: pytest.Item) -> Promotion | None:
    """Returns the session's promotion, if this test is promoted by it."""
    promotion = item.config.stash[PROMOTION]
    return promotion if promotion.promotes(item) else None


class Promotion(PromotionSession):
    """Promotion in a session of pytest; its settings are read when a test is promoted.

    Args:
      config: pytest's config.
      session: the harness's session.

    Attributes:
      targets: the targets of items that take no fixtures.
      early: the items whose runs send their jobs as soon as they are planned, because later items wait for these jobs.
    """

    def __init__(self, config: pytest.Config, session: HarnessSession) -> None:
        # As with tests' output, -s shows logs as they arrive; xdist's workers have no terminal.
        streams = config.option.capture == "no" and not session.is_worker
        super().__init__(
            session.expression,
            active=session.promotes,
            given=lambda: job_settings(config),
            option_of=lambda name: option_of(name).pytest[0],
            tpu=session.settings.project.tpu,
            vertex=session.settings.project.vertex,
            say=session.say if streams else None,
        )
        self.early: set[pytest.Item] = set()
        self._session = session
        self.targets = Targets()

    def promotes(self, item: pytest.Item) -> bool:
        """Returns whether a test is promoted; its mark is inert otherwise."""
        return self.active and item.get_closest_marker(TPU) is not None

    def check(self, items: Sequence[pytest.Item]) -> None:
        """Checks that the promoted tests have a target, and starts the emulated Vertex AI if they go there.

        Raises:
          VertexTargetError: values are missing; the message names all of them.
          EmulationError: the emulated Vertex AI cannot start.
        """
        promoted = [item for item in items if self.promotes(item)]
        if any(not self.targets.is_overridden(item) for item in promoted):
            _ = self.target
        session, settings = self._session, self.settings
        if promoted and settings.emulated and not settings.dry_run and not session.config.option.collectonly:
            self.emulate(session.settings.configuration.settings.gcs_root, [*self._machines(promoted)])
            session.settings.take_surroundings()

    def resources(self, item: pytest.Item) -> TpuResources:
        """Returns the resources that a test requests.

        Raises:
          ResourcesError: its marker has a mistake in it.
        """
        return marks.tpu_resources(item, self.settings.defaults)

    def for_run(
        self,
        item: pytest.Item,
        spec: RunSpec,
        target: VertexTarget,
        of_checkpoint: TpuResources | None = None,
    ) -> Callable[[LocalExecutor], JobExecutor]:
        """Returns a function that makes the executor of a run that is planned for its job.

        Args:
          item: the test.
          spec: the run.
          target: the target of the job.
          of_checkpoint: the resources, if the job is for a checkpoint of the test's train job, which must not be
            replaced by a stand-in; None for the test's own resources.

        Raises:
          ResourcesError: the machine is not named, or only partly.
        """
        from t5x_harness.runs.job import JobExecutor, aot_mode

        name = item.name if not hasattr(item, "spec") else item.spec.name
        order = self.order(name, of_checkpoint or self.resources(item), spec.slice, target)
        if of_checkpoint is not None:
            order = dataclasses.replace(order, name=f"{item.name}-{spec.name}", standins=False)
        if spec.settings.full_size:
            order = dataclasses.replace(order, shrink=False)
        aot, why_unseen = aot_mode(self.settings.aot, full_size=not order.shrink)
        return lambda local: JobExecutor(local, order, lambda: self.jobs, aot, why_unseen)

    def check_order(self, item: pytest.Item, resources: TpuResources, slice_name: str, target: VertexTarget) -> None:
        """Checks a test's job before anything is run for it.

        A dry run also shows a job that would be refused. A job that was sent before is not sent again.

        Raises:
          ResourcesError: such a job would not be sent; the message gives the reason.
        """
        order = self.order(item.name, resources, slice_name, target)
        if self.jobs.sends:
            self.jobs.check(order)

    def _machines(self, items: Sequence[pytest.Item]) -> Iterator[Machine]:
        """Yields the machines of the jobs that will run T5X, as far as known; mistakes are reported later."""
        from t5x_harness.promotion.settings import machine_of

        # The stages of a run are one job.
        sent = [item for item in items if getattr(item, "stage", Stage.TRAIN).executes]
        jobs = {getattr(item, "spec", item): item for item in sent}
        for item in jobs.values():
            with contextlib.suppress(ResourcesError, pytest.fail.Exception):
                asked = self.resources(item)
                if hasattr(item, "spec"):
                    yield machine_of(asked, item.spec.slice)
                elif "t5x_run" in getattr(item, "fixturenames", ()) and not asked.ship:
                    yield machine_of(asked, slice_name(item) or self._session.settings.slice_name)


def check_promotable(item: pytest.Item) -> None:
    """Fails a promoted test that has nothing to send, because its pass here would look like a pass on a TPU.

    It also fails a test whose marker asks for a job that Vertex AI would refuse, before anything is run for it.
    """
    promotion = promotion_of(item)
    if promotion is None or not _calls_t5x_run(item):
        return
    if "t5x_run" not in getattr(item, "fixturenames", ()):
        pytest.fail(
            f"{item.name} is promoted to a TPU and has nothing to send there: give a config to t5x_run in it, or have "
            "the test itself run there: @pytest.mark.tpu(ship=True)",
            pytrace=False,
        )
    if promotion.targets.is_known(item):
        try:
            resources = promotion.resources(item)
            if resources.names_machine:  # otherwise, the machine follows from the slice, which the test may name
                promotion.check_order(item, resources, "", promotion.targets.of(item))
        except ResourcesError as error:
            raise pytest.fail.Exception(f"@pytest.mark.tpu: {error}", pytrace=False) from None


def check_sent(item: pytest.Item) -> None:
    """Fails a promoted test that ended without a job."""
    if _calls_t5x_run(item) and not item.stash.get(marks.JOBS, 0):
        pytest.fail(
            f"{item.name} is promoted to a TPU, and no job was sent for it: call t5x_run in it with a config that can "
            "be sent, and without until= of a stage that runs here",
            pytrace=False,
        )


@contextlib.contextmanager
def network_guarded(item: pytest.Item) -> Iterator[None]:
    """Makes sockets refuse connections beyond this machine in a smoke test, unless jobs go to the real Vertex AI."""
    promotion = promotion_of(item)
    sends = promotion is not None and not promotion.settings.emulated
    if sends or item.get_closest_marker(SMOKE) is None or marks.network_allowed(item):
        yield
        return
    from t5x_harness.system.network import forbidden

    with forbidden():
        yield


def _calls_t5x_run(item: pytest.Item) -> bool:
    """Returns whether a test is promoted and sends its jobs by calling ``t5x_run``."""
    return promotion_of(item) is not None and not isinstance(item, JobItem)
