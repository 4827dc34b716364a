"""What to run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Self

from t5x_harness.spec.choices import Mode, RuntimeChoice
from t5x_harness.spec.settings import RunSettings
from t5x_harness.system.decode import JsonValue

DEFAULT_SLICE = "v3-8"
"""The slice of runs that name none."""


@dataclasses.dataclass(frozen=True)
class RunSpec(JsonValue):
    """What to run: gin files in order, bindings after them, the slice, the code, and how to run all that.

    Attributes:
      gin_files: paths as the user gave them, parsed in this order.
      bindings: gin statements parsed after the files, without ``--gin.``: ``TRAIN_STEPS = 8``.
      search_paths: folders where gin files and their includes are looked up, first match wins.
      mode: what the config binds; None to infer it from the config.
      slice: the TPU slice whose mesh is emulated, by name (``v3-8``) or topology (``v3:4x4``).
      runtime: which T5X runs.
      python_path: folders put in front of ``sys.path`` for the config's own modules.
      cwd: folder that the run starts in; relative paths of the config are relative to it.
      settings: how to run it.
    """

    gin_files: tuple[str, ...]
    bindings: tuple[str, ...] = ()
    search_paths: tuple[str, ...] = ()
    mode: Mode | None = None
    slice: str = DEFAULT_SLICE
    runtime: RuntimeChoice = RuntimeChoice.AUTO
    python_path: tuple[str, ...] = ()
    cwd: str = "."
    settings: RunSettings = dataclasses.field(default_factory=RunSettings)

    def __post_init__(self) -> None:
        object.__setattr__(self, "runtime", RuntimeChoice(self.runtime))  # a plain string is taken, too

    @property
    def name(self) -> str:
        """A short name for tables and folders: the stem of the last file."""
        return Path(self.gin_files[-1]).stem if self.gin_files else "run"

    def with_settings(self, **settings: Any) -> Self:
        """Returns the same run with some of its settings changed."""
        return dataclasses.replace(self, settings=dataclasses.replace(self.settings, **settings))
