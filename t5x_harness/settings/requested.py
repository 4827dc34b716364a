"""A run that a test asks for; the session's settings complete what the test and its fixtures leave open."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from t5x_harness.settings.auxiliary import Auxiliary
from t5x_harness.settings.session import SessionSettings
from t5x_harness.spec import AotMode, Mode, RunSpec, Stage


@dataclasses.dataclass(frozen=True)
class RequestedRun:
    """What a test gives to ``t5x_run``, together with its fixtures.

    Attributes:
      gin_files: in the order they are parsed.
      bindings: parsed after those of the session.
      slice: the slice that the call names.
      otherwise_slice: the slice if neither the call nor a marker names one.
      search_paths: before those of the session.
      samples: rows by task or dataset, then split.
      mode: the mode; None to infer it from what the config binds.
      python_path: folders with modules, before those of the session.
      full_size: run at the sizes that the config names.
      full_mesh: run on the slice's whole mesh.
      tpu_numerics: compute the steps with a TPU's default precision.
      exact_numerics: compile the steps as T5X does.
      check: whether a stage that fails fails the test.
      auxiliary: jobs for each checkpoint that it writes.
      aot: how its programs are compiled for the slice, if they are compiled and nothing is executed.
      until: the last stage that the test asks for; None for all.
    """

    gin_files: tuple[str, ...]
    bindings: tuple[str, ...]
    slice: str | None
    otherwise_slice: str | None
    search_paths: tuple[str, ...]
    samples: Mapping[str, Mapping[str, Any]]
    mode: Mode | None = None
    python_path: tuple[str, ...] = ()
    full_size: bool = False
    full_mesh: bool = False
    tpu_numerics: bool = False
    exact_numerics: bool = False
    check: bool = True
    auxiliary: tuple[Auxiliary, ...] = ()
    aot: AotMode | None = None
    until: Stage | None = None

    def spec(self, settings: SessionSettings, marked: str | None) -> RunSpec:
        """Returns the run under the session's settings; ``marked`` is the slice that a marker names."""
        asked = {
            "bindings": self.bindings,
            "slice": self.slice or marked or self.otherwise_slice,
            "search_paths": self.search_paths,
            "python_path": self.python_path,
            "full_size": self.full_size or None,
            "full_mesh": self.full_mesh or None,
            "tpu_numerics": self.tpu_numerics or None,
            "exact_numerics": self.exact_numerics or None,
            "samples": texts_of(self.samples),
        }
        spec = dataclasses.replace(settings.spec(self.gin_files, asked), mode=self.mode)
        return spec.with_settings(aot=self.aot, until=Stage.AOT if self.aot else self.until)


def texts_of(samples: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """Returns the rows that a test declares as a run takes them."""
    from t5x_harness.standins.rows import Samples

    return tuple(Samples(name, splits).to_text() for name, splits in samples.items())
