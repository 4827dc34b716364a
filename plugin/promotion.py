"""Tests marked ``tpu`` that ``-m`` promotes: which they are, where they run, and their jobs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pytest

from t5x_harness.promotion.expression import TPU
from t5x_harness.promotion.resources import TpuResources
from t5x_harness.promotion.settings import NOT_SENT, PromotionSettings
from t5x_harness.spec import RunSpec
from t5x_harness.vertex.emulated import is_led_to_private_google
from t5x_harness.vertex.target import VertexTarget

from . import marks
from .expected_jobs import expected_jobs, import_sdk
from .promotion_options import read_settings, read_target
from .session import HarnessSession
from .targets import TargetsOfConftests

if TYPE_CHECKING:
    from t5x_harness.promotion.jobs import PromotedJobs
    from t5x_harness.promotion.order import JobOrder
    from t5x_harness.runs.local import LocalBackend
    from t5x_harness.runs.pipeline import BackendFactory
    from t5x_harness.runs.vertex import VertexBackend

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
        self.shown: list[str] = []  # jobs that are only printed
        self.left: list[str] = []  # what became of jobs that had not ended with the session
        self._jobs: PromotedJobs | None = None
        self._emulated = contextlib.ExitStack()
        self._early: set[pytest.Item] = set()
        self._targets = TargetsOfConftests()
        self._importing: threading.Thread | None = None

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
        if self._jobs is None:
            from t5x_harness.promotion.jobs import PromotedJobs

            if self._importing is not None:
                self._importing.join()
            # As with the output of tests, -s shows it as it comes; xdist's workers have no terminal.
            streams = self.config.option.capture == "no" and not hasattr(self.config, "workerinput")
            self._jobs = PromotedJobs(self.settings, self.shown.append, self._session.progress.say if streams else None)
        return self._jobs

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
        dry = "; --tpu-dry-run sends none" if self.settings.dry_run else ""
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
        from t5x_harness.promotion.order import machine_of

        found = machine_of(self.resources(item), spec.slice).slice
        if found is None or found.name == spec.slice:
            return spec
        return dataclasses.replace(spec, slice=found.name, golden=None)  # which is of the other slice

    def for_run(self, item: pytest.Item, spec: RunSpec, target: VertexTarget) -> BackendFactory:
        """What makes the backend of a promoted run.

        Args:
          item: the test that the run is for.
          spec: of :meth:`planned`.
          target: where the job goes.
        """
        order = self.order(item, spec.slice, target)
        if spec.full_size:
            order = dataclasses.replace(order, shrink=False)

        def backend(known: RunSpec, local: LocalBackend) -> VertexBackend:
            from t5x_harness.runs.vertex import VertexBackend

            return VertexBackend(known, local, order, self.jobs)

        return backend

    def plan_early(self, items: Sequence[pytest.Item]) -> None:
        """Notes the items after which their runs' jobs are sent, as those that wait for these come later."""
        self._early = set(items)

    def submits_early(self, item: pytest.Item) -> bool:
        """Whether a run's job is sent after this stage of it, while other runs' stages follow."""
        return item in self._early and self.jobs.has_room

    def heed_interrupts(self, heard: BaseException | None) -> None:
        """Ends the session if Ctrl-C was to end it and came to nothing, while there may be jobs.

        Args:
          heard: what a phase of a test raised; a Ctrl-C that a debugger was entered for is over.

        Raises:
          KeyboardInterrupt: it was dropped.
        """
        if self._jobs is not None:
            self._jobs.heed_interrupts(heard)

    def close(self) -> None:
        """Cancels the jobs that have not ended; what became of them is kept for the end of the report."""
        if self._jobs is not None:
            self.left += self._jobs.close()

    def to_json(self) -> dict[str, list[str]]:
        """What another process needs to tell of this session's jobs."""
        return {"shown": self.shown, "left": self.left}

    def add_json(self, value: Mapping[str, list[str]]) -> None:
        """Adds what :meth:`to_json` gave in another process."""
        self.shown += value["shown"]
        self.left += value["left"]

    def end(self) -> None:
        """Ends the emulated Vertex AI; says what becomes of jobs that are there yet, as the report is over."""
        told = len(self.left)
        self.close()
        for line in self.left[told:]:
            print(line, file=sys.stderr)
        self._emulated.close()

    def _emulate(self, promoted: Sequence[pytest.Item]) -> None:
        from t5x_harness.google.session import ServerError
        from t5x_harness.vertex.emulated import private_google

        if importlib.util.find_spec("google") is None or importlib.util.find_spec("google.cloud.aiplatform") is None:
            raise pytest.UsageError(
                "--vertex=emulated: Google's SDK is not installed here: python -m pip install "
                "'t5x-harness[google,vertex]'"
            )
        source = self._session.options.gcs_root or self._session.project.gcs_root
        try:
            expected = expected_jobs(promoted, self.resources, self._session.slice_name, self.target.image)
            self._emulated.enter_context(private_google(source=source, warm=True, expected=expected))
        except ServerError as error:
            raise pytest.UsageError(f"--vertex=emulated: {error}") from None
        self._session.take_surroundings()
        # While the first run resolves, this process has nothing else to do.
        self._importing = threading.Thread(target=import_sdk, name="t5x-harness-sdk", daemon=True)
        self._importing.start()
