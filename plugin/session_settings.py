"""What a pytest session is told of runs: by its options, the project's pyproject.toml, and where it stands."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from t5x_harness.spec import GCS, READ_SECONDS, RunSpec
from t5x_harness.system.buckets import store

from . import marks
from .options import Options, network_policy

if TYPE_CHECKING:
    from t5x_harness.runtime.choice import Runtime
    from t5x_harness.settings.project import ProjectConfig

__all__ = ["SessionSettings"]

_DEFAULT_SLICE = "v3-8"


class SessionSettings:
    """Settings of a session; each is read when it is first asked for.

    Args:
      config: pytest's.

    Attributes:
      config: as above.
      options: of the command line and the ini file.
      promotes: whether ``-m`` promotes the tests that it selects to TPU jobs.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.options = Options.of(config)
        self.promotes = marks.promotes_tpu(config.option.markexpr or "")
        self._store = store()
        self._project: ProjectConfig | None = None
        self._runtime: Runtime | None = None

    def check(self) -> None:
        """Checks what the options and pyproject.toml say before pytest collects anything.

        Raises:
          pytest.UsageError: something is wrong with it.
        """
        network_policy(self.config)
        if self.options.slice or self.project.slice:
            _ = self.slice_name
        if self.options.runtime == "installed":
            _ = self.runtime
        from t5x_harness.findings.rule import all_codes
        from t5x_harness.findings.silencing import not_codes

        for option, codes in (("--t5x-ignore", self.options.ignore), ("--t5x-select", self.options.select)):
            if problem := not_codes(codes, all_codes):
                raise pytest.UsageError(f"{option}: {problem}")
        if self.options.golden_update and not (self.options.golden or self.project.plan_golden):
            from t5x_harness.plan.golden_check import NOTHING_TO_UPDATE

            raise pytest.UsageError(NOTHING_TO_UPDATE)

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
        name = self.options.slice or self.project.slice or _DEFAULT_SLICE
        if problem := marks.slice_problem(name):
            raise pytest.UsageError(f"slice {problem}")
        return name

    def spec(self, gin_files: Sequence[str], **overrides: object) -> RunSpec:
        """A run of these files under the session's options; ``overrides`` are fields of :class:`RunSpec`."""
        spec = RunSpec(
            gin_files=tuple(gin_files),
            bindings=(*self.project.bindings, *self.options.bindings),
            search_paths=(*self.options.search_paths, *self.project.search_paths),
            tfds_data_dir=self.options.tfds_data_dir,
            slice=self.slice_name,
            runtime=self.options.runtime,
            python_path=(*self.options.python_path, *self.project.python_path, str(self.config.rootpath)),
            full_size=self.options.full_size,
            full_mesh=self.options.full_mesh,
            cwd=str(self.config.rootpath),
            ignore=self._silenced,
            strict=self.options.strict or self.project.strict,
            standins=self.options.standins or self.project.standins or "missing",
            samples=self.project.samples,
            read_seconds=self.options.read_seconds or self.project.read_seconds or READ_SECONDS,
            gcs=self.options.gcs or self.project.gcs or GCS[0],
            gcs_root=self.fake_buckets or self.options.gcs_root or self.project.gcs_root,
        )
        return dataclasses.replace(spec, **overrides)  # type: ignore[arg-type]

    @functools.cached_property
    def _silenced(self) -> tuple[str, ...]:
        from t5x_harness.findings.rule import all_codes
        from t5x_harness.findings.silencing import codes_to_silence

        ignore, select = (*self.project.ignore, *self.options.ignore), self.options.select or self.project.select
        return codes_to_silence(ignore, select, all_codes)

    def golden(self, name: str) -> dict[str, Any]:
        """The fields of :class:`RunSpec` for the golden plan of a collected run; none if nobody asks for one."""
        target = self.project.plan_golden
        if self.options.golden is not None:
            slash = "/" if self.options.golden.endswith("/") else ""
            target = f"{self.config.invocation_params.dir / self.options.golden}{slash}"
        if target is None:
            return {}
        from t5x_harness.plan.golden_check import golden_file

        return {"golden": golden_file(target, name), "golden_update": self.options.golden_update}

    def check_goldens(self, items: Iterable[pytest.Item]) -> None:
        """Checks that each of the selected runs keeps its plan in a file of its own.

        Raises:
          pytest.UsageError: two do not.
        """
        specs = {item.spec for item in items if hasattr(item, "spec")}
        if any(spec.golden for spec in specs):
            from t5x_harness.plan.golden_check import shared_golden

            if problem := shared_golden(sorted(specs, key=lambda spec: spec.gin_files)):
                raise pytest.UsageError(problem)

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
