"""What a lint rule is: a rule that sees the statements of a config, and nothing behind them."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from t5x_harness.findings import rule
from t5x_harness.findings.rule import Example
from t5x_harness.gin.program import BINDINGS, Binding, GinProgram, MacroBinding
from t5x_harness.gin.snapshot import Snapshot
from t5x_harness.slices.slice import Slice
from t5x_harness.spec import Finding, Location, Stage

__all__ = ["Context", "Example", "Rule"]


@dataclasses.dataclass(frozen=True)
class Context:
    """What a rule looks at.

    Attributes:
      program: the config.
      snapshot: what the configurables offer that it names.
      slice: the slice that it is meant for; None where the user did not name one.
    """

    program: GinProgram
    snapshot: Snapshot
    slice: Slice | None = None

    def in_t5x(self, location: Location) -> bool:
        """Tells whether a place is in a file of T5X's own, which is not the user's to fix unless the user named it."""
        program = self.program
        if program.t5x_parent is None or location.file in (BINDINGS, *program.spec.gin_files):
            return False
        file = Path(program.spec.cwd).absolute() / location.file
        return file.is_relative_to(Path(program.t5x_parent) / "t5x")


class Rule(rule.Mistake):
    """A mistake that can be seen in the text of a config.

    Attributes:
      whole_program: whether the rule is only meaningful once every statement has been read.
    """

    stage = Stage.LINT
    whole_program: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if hasattr(cls, "bad") and not cls.bad.at:
            raise TypeError(
                f"rule {cls.__qualname__} ({cls.code}) does not say which line of its bad example is at fault"
            )
        super().__init_subclass__(**kwargs)

    @abc.abstractmethod
    def check(self, context: Context) -> Iterator[Finding]:
        """Yields what is wrong with a config."""

    def place(self, at: Binding | MacroBinding | Location | None) -> tuple[Location | None, str | None]:
        """Returns where a statement stands, and its name; or the place itself."""
        return (at.location, str(at)) if isinstance(at, (Binding, MacroBinding)) else (at, None)


def all_rules() -> tuple[type[Rule], ...]:
    """Returns every rule of this room, ordered by code."""
    from t5x_harness.lint import rules  # noqa: F401  importing them registers them

    return tuple(found for found in rule.Mistake.registered(Stage.LINT) if issubclass(found, Rule))


def where(location: Location) -> str:
    """Returns a place in a sentence: ``finetune.gin:12``, or the command line."""
    return "the command line" if location.file == BINDINGS else str(location)


def shown_folder(folder: str, program: GinProgram) -> str:
    """Returns a folder that is searched, relative to the working directory if below it.

    T5X's own is not spelled out.
    """
    if folder == program.t5x_parent:
        return "the folder of t5x"
    path, cwd = Path(folder), Path(program.spec.cwd).absolute()
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else folder
