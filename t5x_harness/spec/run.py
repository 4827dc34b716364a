"""What to run."""

import dataclasses
from pathlib import Path
from typing import Any, Self

from t5x_harness.spec.choices import Mode, RuntimeChoice
from t5x_harness.spec.option import OptionForm, option, take_plain_strings
from t5x_harness.spec.settings import READING, RunSettings
from t5x_harness.system.decode import JsonValue

DEFAULT_SLICE = "v3-8"
"""The slice of runs that do not name one."""


@dataclasses.dataclass(frozen=True)
class RunSpec(JsonValue):
    """What to run: gin files in order, bindings after them, the slice, the code, and how to run it.

    Attributes:
      gin_files: the paths as the user gave them, parsed in this order.
      bindings: gin statements parsed after the files, without ``--gin.``: ``TRAIN_STEPS = 8``.
      search_paths: the folders in which gin files and their includes are looked up; the first match wins.
      python_path: folders that are prepended to ``sys.path`` for the config's own modules.
      mode: the mode that the config is for; None to infer it from the config.
      slice: the TPU slice whose mesh is emulated, by name (``v3-8``) or topology (``v3:4x4``).
      runtime: the T5X that runs.
      cwd: the folder in which the run starts; relative paths of the config are relative to it.
      settings: how to run it.
    """

    gin_files: tuple[str, ...]
    bindings: tuple[str, ...] = option(
        (),
        "a Gin binding, such as 'BATCH_SIZE = 64', parsed after the files of every config; --gin.BATCH_SIZE=64 is the "
        "same",
        shell="--gin_bindings",
        pytest=("--t5x-gin", "--gin_bindings"),
        ini=True,
        key=True,
        form=OptionForm.BINDINGS,
        joined="after",
        metavar="'NAME = VALUE'",
        commands=(*READING, "fit"),
        group="what to run",
    )
    search_paths: tuple[str, ...] = option(
        (),
        "folders where Gin files and includes are looked up, after the working directory and before T5X's own",
        shell="--gin_search_paths",
        pytest=("--t5x-gin-search-paths", "--gin_search_paths"),
        ini=True,
        key=True,
        form=OptionForm.ADDRESSES,
        metavar="DIR,DIR",
        commands=(*READING, "fit"),
        group="what to run",
    )
    python_path: tuple[str, ...] = option(
        (),
        "folders with the configs' own modules, before python_path of [tool.t5x_harness]",
        pytest=True,
        key=True,
        form=OptionForm.FOLDERS,
        metavar="DIR,DIR",
        commands=(*READING, "fit"),
        group="what to run",
    )
    mode: Mode | None = option(
        None,
        "what the config is for",
        "what it binds",
        shell="--run_mode",
        commands=(*READING, "fit"),
        group="what to run",
    )
    slice: str = option(
        DEFAULT_SLICE,
        "TPU slice whose mesh is laid over CPU devices, such as v3-8, v4-32 or v3:4x4",
        pytest=True,
        ini=True,
        key=True,
        metavar="NAME",
        commands=READING,
    )
    runtime: RuntimeChoice = option(
        RuntimeChoice.AUTO,
        "which T5X: the installed one, the embedded one, or auto, the installed one if there is any",
        shell="--t5x-runtime",
        pytest=True,
        commands=(*READING, "fit"),
    )
    cwd: str = "."
    settings: RunSettings = dataclasses.field(default_factory=RunSettings)

    def __post_init__(self) -> None:
        take_plain_strings(self)

    @property
    def name(self) -> str:
        """A short name for tables and folders: the stem of the last file."""
        return Path(self.gin_files[-1]).stem if self.gin_files else "run"

    def with_settings(self, **settings: Any) -> Self:
        """Returns the same run with some of its settings changed."""
        return dataclasses.replace(self, settings=dataclasses.replace(self.settings, **settings))
