"""Tells run configs from fragments: files that are only there to be included."""

from __future__ import annotations

import dataclasses
import enum
import os
from collections.abc import Sequence
from pathlib import Path

from t5x_harness.lint.program import MAIN, GinProgram
from t5x_harness.lint.reader import read
from t5x_harness.lint.rule import closest
from t5x_harness.lint.snapshot import Snapshot
from t5x_harness.spec import Mode, RunSpec

__all__ = [
    "SANDBOXED_MACROS",
    "Classification",
    "Kind",
    "classify",
    "classify_program",
    "unbound_parameters",
]

SANDBOXED_MACROS = ("MODEL_DIR", "EVAL_OUTPUT_DIR", "INFER_OUTPUT_DIR")
"""Output folders, which T5X's files leave to whoever launches the run; here the harness gives them a folder."""


class Kind(enum.StrEnum):
    """What a gin file is for."""

    RUN_CONFIG = "run config"
    FRAGMENT = "fragment"
    BROKEN = "broken"


@dataclasses.dataclass(frozen=True)
class Classification:
    """What a gin file is.

    Attributes:
      kind: a run config can be run as it is, a fragment is only included, and a broken file cannot be read far enough
        to tell.
      mode: what a run config runs.
      reason: why it is what it is, as a sentence without a full stop.
    """

    kind: Kind
    mode: Mode | None
    reason: str

    @property
    def is_run_config(self) -> bool:
        """Whether to collect it as a run. A broken file is not: it may be a broken fragment."""
        return self.kind is Kind.RUN_CONFIG


def classify(
    path: str | Path,
    *,
    bindings: Sequence[str] = (),
    search_paths: Sequence[str] = (),
    python_path: Sequence[str] = (),
    cwd: str | Path = ".",
    t5x_parent: Path | None = None,
) -> Classification:
    """Classifies one gin file.

    Args:
      path: the file.
      bindings: statements that every run gets on top, which may give values that the file leaves open.
      search_paths: as ``--gin_search_paths``.
      python_path: folders with the config's own modules.
      cwd: the run's working directory.
      t5x_parent: the folder that holds the package ``t5x`` in use.
    """
    spec = RunSpec(
        gin_files=(os.fspath(path),),
        bindings=tuple(bindings),
        search_paths=tuple(search_paths),
        python_path=tuple(python_path),
        cwd=os.fspath(cwd),
    )
    return classify_program(read(spec, t5x_parent=t5x_parent))


def classify_program(program: GinProgram) -> Classification:
    """Classifies what was read of one or more files."""
    mode = program.mode
    if not program.complete:
        if mode is not None:
            return Classification(
                Kind.RUN_CONFIG, mode, f"it binds {_short(program.entry)}, but cannot be read to the end"
            )
        return Classification(Kind.BROKEN, None, "it cannot be read to the end")
    if mode is None:
        others = [b.target for b in program.entries]
        if others:
            return Classification(
                Kind.FRAGMENT, None, f"it binds {_short(others[0])}, which is none of train, evaluate and infer"
            )
        return Classification(Kind.FRAGMENT, None, "it binds none of train, evaluate and infer")
    missing = [m.name for m in program.required_macros if m.name not in SANDBOXED_MACROS]
    if missing:
        return Classification(Kind.FRAGMENT, mode, f"it leaves {_listed(missing)} to another file or the command line")
    undefined = [name for name, _ in program.undefined_macros if closest(name, program.macros) is None]
    if undefined:
        return Classification(Kind.FRAGMENT, mode, f"it uses {_listed(undefined)}, which another file has to define")
    if unbound := unbound_parameters(program, Snapshot(_parent(program))):
        names = [f"{_short(program.entry)}.{name}" for name in unbound]
        return Classification(Kind.FRAGMENT, mode, f"it does not bind {_listed(names)}")
    return Classification(Kind.RUN_CONFIG, mode, f"it binds {_short(program.entry)} and leaves nothing open")


def unbound_parameters(program: GinProgram, snapshot: Snapshot) -> tuple[str, ...]:
    """The parameters without a default of the function that T5X calls, which nothing binds."""
    entry = program.entry
    configurable = snapshot.find(entry) if entry is not None else None
    if entry is None or configurable is None:
        return ()
    return tuple(name for name in configurable.required if program.lookup(entry, name) is None)


def _parent(program: GinProgram) -> Path | None:
    return Path(program.t5x_parent) if program.t5x_parent else None


def _short(target: str | None) -> str:
    return (target or "").removeprefix(f"{MAIN}.")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
