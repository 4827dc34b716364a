"""What a pytest session is told of runs: by its options, the project's pyproject.toml, and where it stands."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from t5x_harness.settings.options import RUNS
from t5x_harness.spec import DEFAULT_SLICE, RunSpec, RuntimeChoice
from t5x_harness.system.buckets import store

from . import marks
from .options import values_of

if TYPE_CHECKING:
    from t5x_harness.runtime.choice import Runtime
    from t5x_harness.settings.project import ProjectConfig
    from t5x_harness.settings.specs import Given

__all__ = ["SessionSettings"]


class SessionSettings:
    """Settings of a session; each is read when it is first asked for.

    Args:
      config: pytest's.

    Attributes:
      config: as above.
      promotes: whether ``-m`` promotes the tests that it selects to TPU jobs.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self._values = values_of(config, RUNS)
        self.promotes = marks.promotes_tpu(config.option.markexpr or "")
        self._store = store()
        self._project: ProjectConfig | None = None
        self._runtime: Runtime | None = None

    def check(self) -> None:
        """Checks what the options and pyproject.toml say before pytest collects anything.

        Raises:
          pytest.UsageError: something is wrong with it.
        """
        if self.options.slice or self.project.slice:
            _ = self.slice_name
        if self.options.runtime is RuntimeChoice.INSTALLED:
            _ = self.runtime
        from t5x_harness.settings.specs import SettingsError

        try:
            self.options.silenced(self.project)
            self.options.golden_of("run", self.project)
        except SettingsError as error:
            raise pytest.UsageError(str(error)) from None

    @functools.cached_property
    def options(self) -> Given:
        """What the command line and the ini file say."""
        from t5x_harness.settings.specs import Given

        return Given.of(self._values, self.config.invocation_params.dir, lambda row: row.pytest[0])

    @property
    def project(self) -> ProjectConfig:
        """``[tool.t5x_harness]`` of the root folder's pyproject.toml; read once.

        Raises:
          pytest.UsageError: the table has a mistake in it.
        """
        if self._project is None:
            from t5x_harness.settings.project import ProjectError, load_project

            try:
                self._project = load_project(self.config.rootpath)
            except ProjectError as error:
                raise pytest.UsageError(str(error)) from None
        return self._project

    @property
    def runtime(self) -> Runtime:
        """The T5X that runs are made with.

        Raises:
          pytest.UsageError: ``--t5x-runtime=installed`` and none is installed.
        """
        if self._runtime is None:
            from t5x_harness.runtime.choice import RuntimeChoiceError, find_runtime

            try:
                self._runtime = find_runtime(self.options.runtime)
            except RuntimeChoiceError as error:
                raise pytest.UsageError(str(error)) from None
        return self._runtime

    @property
    def slice_name(self) -> str:
        """The slice of configs that name none.

        Raises:
          pytest.UsageError: there is no such slice.
        """
        name = self.options.slice or self.project.slice or DEFAULT_SLICE
        if problem := marks.slice_problem(name):
            raise pytest.UsageError(f"slice {problem}")
        return name

    def spec(self, gin_files: Sequence[str], **overrides: object) -> RunSpec:
        """A run of these files under the session's options; ``overrides`` are fields of :class:`RunSpec`."""
        root = self.config.rootpath
        own: dict[str, Any] = {
            "slice": self.slice_name,
            "until": None,
        }  # tests that call t5x_run run all of their stages
        if buckets := self.fake_buckets:
            own["gcs_root"] = buckets
        spec = self.options.spec(gin_files, self.project, root, **own)
        return dataclasses.replace(spec, **{"python_path": (*spec.python_path, str(root)), **overrides})

    def golden(self, name: str) -> dict[str, Any]:
        """The fields of :class:`RunSpec` for the golden plan of a collected run; none if nobody asks for one."""
        return self.options.golden_of(name, self.project)

    def check_goldens(self, items: Iterable[pytest.Item]) -> None:
        """Checks that each of the selected runs keeps its plan in a file of its own.

        Raises:
          pytest.UsageError: two do not.
        """
        from t5x_harness.settings.specs import SettingsError

        specs = {item.spec for item in items if hasattr(item, "spec")}
        try:
            self.options.check_goldens(sorted(specs, key=lambda spec: spec.gin_files))
        except SettingsError as error:
            raise pytest.UsageError(str(error)) from None

    @property
    def expects_runs(self) -> bool:
        """Whether the command line asks for runs: ``-m smoke``, ``-m tpu``, or a gin file by name."""
        if self.promotes or marks.selects_only(self.config.option.markexpr or "", marks.SMOKE):
            return True
        return any(str(arg).partition("::")[0].endswith(".gin") for arg in self.config.args)

    def take_surroundings(self) -> None:
        """Takes the private Google that this process was led to just now as where it is, and not as a test's own."""
        self._store = store()

    @property
    def fake_buckets(self) -> str | None:
        """The folder of the buckets in ``fake_gcs``, which are the user's own; None if the test that runs has none."""
        here = store()
        return str(here.root / "buckets") if here is not None and here != self._store else None
