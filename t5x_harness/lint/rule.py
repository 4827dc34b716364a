"""What lint rules look at: the statements of a config, and nothing behind them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

from t5x_harness.findings.rule import Check, Mistake, Rule, rule_of
from t5x_harness.gin.program import BINDINGS, Binding, GinProgram, MacroBinding
from t5x_harness.gin.snapshot import Snapshot
from t5x_harness.slices.slice import Slice
from t5x_harness.spec import Location, Stage


@dataclasses.dataclass(frozen=True)
class Context:
    """What a rule looks at.

    Attributes:
      program: the config.
      snapshot: what the configurables offer that it names.
      slice: the slice that it is meant for; None if the user did not name one.
    """

    program: GinProgram
    snapshot: Snapshot
    slice: Slice | None = None

    def in_t5x(self, location: Location) -> bool:
        """Returns whether a place is in one of T5X's own files, which users do not fix unless they named it."""
        program = self.program
        if program.t5x_parent is None or location.file in (BINDINGS, *program.spec.gin_files):
            return False
        file = Path(program.spec.cwd).absolute() / location.file
        return file.is_relative_to(Path(program.t5x_parent) / "t5x")

    def place(self, at: Binding | MacroBinding | Location | None) -> tuple[Location | None, str | None]:
        """Returns where a statement stands, and its name; or the place itself."""
        return (at.location, str(at)) if isinstance(at, (Binding, MacroBinding)) else (at, None)


def finds(mistake: Mistake, *, whole_program: bool = False) -> Callable[[Check[Context]], Rule[Context]]:
    """Makes a lint rule of a function.

    Args:
      mistake: what it finds.
      whole_program: whether it is only meaningful after every statement has been read.

    Raises:
      TypeError: the mistake's bad example does not say which line is at fault.
    """
    if not mistake.bad.at:
        raise TypeError(f"the rule {mistake.code} does not say which line of its bad example is at fault")
    return functools.partial(rule_of, mistake, Stage.LINT, whole_program=whole_program)


def where(location: Location) -> str:
    """Returns a place in a sentence: ``finetune.gin:12``, or the command line."""
    return "the command line" if location.file == BINDINGS else str(location)


def shown_folder(folder: str, program: GinProgram) -> str:
    """Returns a searched folder, relative to the working directory if below it; T5X's own is not spelled out."""
    if folder == program.t5x_parent:
        return "the folder of t5x"
    path, cwd = Path(folder), Path(program.spec.cwd).absolute()
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else folder
