"""The promotion of tests marked ``tpu`` by ``-m``: which tests, to which target, on which machines, and their jobs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pytest

from t5x_harness.fixtures.runs import fail_at_marker, slice_name
from t5x_harness.fixtures.vertex import Targets
from t5x_harness.promotion.marker import SMOKE, TPU, ResourcesError, TpuResources, resources_in, selects_only
from t5x_harness.promotion.settings import PromotionSettings
from t5x_harness.settings.forms import SettingsError
from t5x_harness.settings.options import option_of
from t5x_harness.spec import RunSpec, Stage
from t5x_harness.vertex.emulated import emulated_google, uses_emulated_google
from t5x_harness.vertex.target import EMULATED, PLACEHOLDERS, VertexTarget, VertexTargetError, find_target, variable_of

from . import marks
from .session import HarnessSession, job_settings

if TYPE_CHECKING:
    from t5x_harness.promotion.jobs import PromotedJobs
    from t5x_harness.promotion.order import JobOrder
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


class Promotion:
    """Promotion in a session of pytest: its settings, its jobs, and the emulated Vertex AI if the jobs run there.

    Args:
      session: the harness's session.

    Attributes:
      active: whether the expression of ``-m`` promotes the tests that it selects.
      targets: the targets of items that take no fixtures.
      early: the items whose runs send their jobs as soon as they are planned, because later items wait for these jobs.
      shown: the texts of jobs that were printed instead of sent.
      left: a line for each job that had not ended when the session ended.
    """

    def __init__(self, session: HarnessSession) -> None:
        self.active = session.promotes
        self.targets = Targets()
        self.early: set[pytest.Item] = set()
        self.shown: list[str] = []
        self.left: list[str] = []
        self._session = session
        self._jobs: PromotedJobs | None = None
        self._emulated = contextlib.ExitStack()
        self._importing: threading.Thread | None = None

    @functools.cached_property
    def settings(self) -> PromotionSettings:
        """The settings of promoted tests.

        Raises:
          ValueError: a value is invalid.
        """
        given = job_settings(self._session.config)
        return PromotionSettings(
            given["vertex"] or ("emulated" if uses_emulated_google() else "real"),
            given["parallel"],
            given["max_chip_hours"],
            given["dry_run"],
            given["reuse"],
            given["tpu_aot"],
            {**self._session.settings.project.tpu, **resources_in(given["tpu"] or ())},
        )

    @functools.cached_property
    def target(self) -> VertexTarget:
        """Where the jobs of tests go, unless a fixture overrides it.

        Raises:
          VertexTargetError: values are missing, in which case the message says how to set each; or a value is invalid.
        """
        otherwise = EMULATED if self.settings.emulated else PLACEHOLDERS if self.settings.dry_run else {}
        given = job_settings(self._session.config)
        try:
            return find_target(given, os.environ, self._session.settings.project.vertex, otherwise)
        except VertexTargetError as error:
            if not error.missing:
                raise
            names = ((name, option_of(name).pytest[0]) for name in error.missing)
            ways = "\n".join(f"    {name}: {option}=… or {variable_of(name)}" for name, option in names)
            raise VertexTargetError(
                f"tests are promoted to TPU jobs, and no Vertex AI target is configured. Missing:\n{ways}\n"
                "    or [tool.t5x_harness.vertex] of pyproject.toml, or a conftest's own fixture vertex_target\n"
                "    without a cloud: --t5x-vertex=emulated runs the jobs on this machine, against an emulated Vertex "
                "AI; --t5x-tpu-dry-run shows them with placeholders",
                error.missing,
            ) from None

    @property
    def jobs(self) -> PromotedJobs:
        """The session's jobs."""
        if self._jobs is None:
            from t5x_harness.promotion.jobs import PromotedJobs

            if self._importing is not None:
                self._importing.join()
            # As with tests' output, -s shows logs as they arrive; xdist's workers have no terminal.
            streams = self._session.config.option.capture == "no" and not self._session.is_worker
            self._jobs = PromotedJobs(self.settings, self.shown.append, self._session.progress.say if streams else None)
        return self._jobs

    def header(self) -> list[str]:
        """Returns lines that explain the effect of ``-m`` on tests marked ``tpu``; none unless it names the mark."""
        begin = f"t5x-harness: -m {self._session.expression!r}"
        if not self.active:
            also = (
                f"{begin} also selects tests that are not marked {TPU}, so none is promoted to a TPU job: all run here"
            )
            return [also] if selects_only(self._session.expression, TPU) else []
        try:
            where = f"project {self.target.project}, {self.target.location}, image {self.target.image}"
        except VertexTargetError:
            where = "no target is configured"
        here = self.settings.emulated or uses_emulated_google()
        service = "an emulated Vertex AI on this machine" if here else "Vertex AI"
        dry = "; --t5x-tpu-dry-run sends none" if self.settings.dry_run else ""
        return [f"{begin} promotes tests marked {TPU} to jobs on {service} ({where}){dry}"]

    def promotes(self, item: pytest.Item) -> bool:
        """Returns whether a test is promoted; its mark is inert otherwise."""
        return self.active and item.get_closest_marker(TPU) is not None

    def check(self, items: Sequence[pytest.Item]) -> None:
        """Checks that the promoted tests have a target, and starts the emulated Vertex AI if they go there.

        Raises:
          VertexTargetError: values are missing; the message names all of them.
          SettingsError: the emulated Vertex AI cannot start.
        """
        promoted = [item for item in items if self.promotes(item)]
        if any(not self.targets.is_overridden(item) for item in promoted):
            _ = self.target
        session, settings = self._session, self.settings
        if promoted and settings.emulated and not settings.dry_run and not session.config.option.collectonly:
            self._emulate([*self._machines(promoted)])
            session.settings.take_surroundings()

    def resources(self, item: pytest.Item) -> TpuResources:
        """Returns the resources that a test requests.

        Raises:
          ResourcesError: its marker has a mistake in it.
        """
        return marks.tpu_resources(item, self.settings.defaults)

    def order(self, name: str, resources: TpuResources, slice_name: str, target: VertexTarget) -> JobOrder:
        """Returns the order for a job; see :func:`~t5x_harness.promotion.order.order_of`."""
        from t5x_harness.promotion.order import order_of

        return order_of(name, resources, self.settings, target, slice_name)

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

    def raise_pending_interrupt(self, raised: BaseException | None) -> None:
        """Ends the session after a dropped Ctrl-C, if jobs may be running.

        Args:
          raised: the exception of a test's phase; a Ctrl-C that started a debugger was not dropped.

        Raises:
          KeyboardInterrupt: a Ctrl-C was dropped.
        """
        if self._jobs is not None:
            self._jobs.raise_pending_interrupt(raised)

    def close(self) -> None:
        """Cancels the jobs that have not ended, and keeps a line about each for the end of the report."""
        if self._jobs is not None:
            self.left += self._jobs.close()

    def end(self) -> None:
        """Ends the emulated Vertex AI, and prints lines about remaining jobs, because the report is complete."""
        reported = len(self.left)
        self.close()
        for line in self.left[reported:]:
            print(line, file=sys.stderr)
        self._emulated.close()

    def to_json(self) -> dict[str, list[str]]:
        """Returns the values that another process needs to report this session's jobs."""
        return {"shown": self.shown, "left": self.left}

    def add_json(self, value: Mapping[str, list[str]]) -> None:
        """Adds the values of :meth:`to_json` from another process."""
        self.shown += value["shown"]
        self.left += value["left"]

    def _emulate(self, machines: Sequence[Machine]) -> None:
        """Makes this process's Google clients use an emulated Vertex AI until :meth:`end`.

        Args:
          machines: the machines of the jobs that will run T5X; jobs on the first machine are prepared for.

        Raises:
          SettingsError: the emulated Vertex AI cannot start.
        """
        from t5x_harness.google.session import ServerError
        from t5x_harness.google.vertex.settings import ExpectedJobs

        if importlib.util.find_spec("google") is None or importlib.util.find_spec("google.cloud.aiplatform") is None:
            raise SettingsError(
                "--t5x-vertex=emulated: Google's SDK is not installed here: python -m pip install "
                "'t5x-harness[google,vertex]'"
            )
        expected = None
        if machines:
            # A protobuf message would need Google's library, which is imported only later.
            machine = {name: value for name, value in dataclasses.asdict(machines[0]).items() if value}
            expected = ExpectedJobs(self.target.image, machine, machines.count(machines[0]))
        source = self._session.settings.configuration.settings.gcs_root
        try:
            self._emulated.enter_context(emulated_google(source=source, warm=True, expected=expected))
        except ServerError as error:
            raise SettingsError(f"--t5x-vertex=emulated: {error}") from None
        # This process is idle while the first run resolves.
        self._importing = threading.Thread(target=_import_sdk, name="t5x-harness-sdk", daemon=True)
        self._importing.start()

    def _machines(self, items: Sequence[pytest.Item]) -> Iterator[Machine]:
        """Yields the machines of the jobs that will run T5X, as far as known; mistakes are reported later."""
        from t5x_harness.promotion.order import machine_of

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
            fail_at_marker(item, TPU, f"@pytest.mark.tpu: {error}")


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


def _import_sdk() -> None:
    """Imports the part of Google's SDK that sends jobs; errors are reported when it is used."""
    with contextlib.suppress(Exception):
        importlib.import_module("google.cloud.aiplatform_v1")
