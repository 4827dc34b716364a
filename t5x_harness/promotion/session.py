"""A session that promotes tests: its settings, its jobs, and the emulated Vertex AI if the jobs run there."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from t5x_harness.promotion.marker import TPU, selects_only
from t5x_harness.promotion.settings import JobOrder, PromotionSettings, order_of, target_of
from t5x_harness.vertex.emulated import uses_emulated_google
from t5x_harness.vertex.target import VertexTarget, VertexTargetError

if TYPE_CHECKING:
    from t5x_harness.promotion.jobs import PromotedJobs
    from t5x_harness.promotion.marker import TpuResources
    from t5x_harness.vertex.machine import Machine


class EmulationError(ValueError):
    """The emulated Vertex AI cannot start; the message says why."""

    def __init__(self, why: str) -> None:
        super().__init__(f"--t5x-vertex=emulated: {why}")


class PromotionSession:
    """Reads the settings of promoted tests, and starts and ends the services that they need.

    Args:
      expression: the expression of ``-m``.
      active: whether this expression promotes the tests that it selects.
      given: reads the values of options, variables and the ini file, by field.
      option_of: returns the name of a field's option, for messages.
      tpu: the resources in the project's file.
      vertex: the target's values in the project's file.
      say: called with each line of the jobs' logs; None to drop the lines.

    Attributes:
      active: whether the expression promotes the tests that it selects.
      shown: the texts of jobs that were printed instead of sent.
      left: a line for each job that had not ended when the session ended.
    """

    def __init__(
        self,
        expression: str,
        *,
        active: bool,
        given: Callable[[], Mapping[str, Any]],
        option_of: Callable[[str], str],
        tpu: Mapping[str, Any],
        vertex: Mapping[str, str],
        say: Callable[[str], None] | None,
    ) -> None:
        self.active = active
        self._expression = expression
        self._given = given
        self._option_of = option_of
        self._tpu = tpu
        self._vertex = vertex
        self._say = say
        self.shown: list[str] = []
        self.left: list[str] = []
        self._jobs: PromotedJobs | None = None
        self._emulated = contextlib.ExitStack()
        self._importing: threading.Thread | None = None

    @functools.cached_property
    def settings(self) -> PromotionSettings:
        """The settings of promoted tests.

        Raises:
          ValueError: a value is invalid.
        """
        return PromotionSettings.of(self._given(), self._tpu, emulated=uses_emulated_google())

    @functools.cached_property
    def target(self) -> VertexTarget:
        """Where the jobs of tests go, unless a fixture overrides it.

        Raises:
          VertexTargetError: values are missing, in which case the message names all of them; or a value is invalid.
        """
        return target_of(self.settings, self._given(), os.environ, self._vertex, self._option_of)

    def header(self) -> list[str]:
        """Returns lines that explain the effect of ``-m`` on tests marked ``tpu``; none unless it names the mark."""
        begin = f"t5x-harness: -m {self._expression!r}"
        if not self.active:
            also = (
                f"{begin} also selects tests that are not marked {TPU}, so none is promoted to a TPU job: all run here"
            )
            return [also] if selects_only(self._expression, TPU) else []
        try:
            where = f"project {self.target.project}, {self.target.location}, image {self.target.image}"
        except VertexTargetError:
            where = "no target is configured"
        here = self.settings.emulated or uses_emulated_google()
        service = "an emulated Vertex AI on this machine" if here else "Vertex AI"
        dry = "; --t5x-tpu-dry-run sends none" if self.settings.dry_run else ""
        return [f"{begin} promotes tests marked {TPU} to jobs on {service} ({where}){dry}"]

    def order(self, name: str, resources: TpuResources, slice_name: str, target: VertexTarget) -> JobOrder:
        """Returns a test's order for a job; see :func:`~t5x_harness.promotion.settings.order_of`."""
        return order_of(name, resources, self.settings, target, slice_name)

    @property
    def jobs(self) -> PromotedJobs:
        """The session's jobs."""
        if self._jobs is None:
            from t5x_harness.promotion.jobs import PromotedJobs

            if self._importing is not None:
                self._importing.join()
            self._jobs = PromotedJobs(self.settings, self.shown.append, self._say)
        return self._jobs

    def emulate(self, source: str | None, machines: Sequence[Machine]) -> None:
        """Makes this process's Google clients use an emulated Vertex AI until :meth:`end`.

        Args:
          source: a folder that contains a folder for each bucket; None for no buckets.
          machines: the machines of the jobs that will run T5X; jobs on the first machine are prepared for.

        Raises:
          EmulationError: the emulated Vertex AI cannot start.
        """
        from t5x_harness.google.session import ServerError
        from t5x_harness.google.vertex.settings import ExpectedJobs
        from t5x_harness.vertex.emulated import emulated_google

        if importlib.util.find_spec("google") is None or importlib.util.find_spec("google.cloud.aiplatform") is None:
            raise EmulationError(
                "Google's SDK is not installed here: python -m pip install 't5x-harness[google,vertex]'"
            )
        expected = None
        if machines:
            # A protobuf message would need Google's library, which is imported only later.
            machine = {name: value for name, value in dataclasses.asdict(machines[0]).items() if value}
            expected = ExpectedJobs(self.target.image, machine, machines.count(machines[0]))
        try:
            self._emulated.enter_context(emulated_google(source=source, warm=True, expected=expected))
        except ServerError as error:
            raise EmulationError(str(error)) from None
        # This process is idle while the first run resolves.
        self._importing = threading.Thread(target=_import_sdk, name="t5x-harness-sdk", daemon=True)
        self._importing.start()

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


def _import_sdk() -> None:
    """Imports the part of Google's SDK that sends jobs; errors are reported when it is used."""
    with contextlib.suppress(Exception):
        importlib.import_module("google.cloud.aiplatform_v1")
