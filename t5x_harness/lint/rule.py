"""What a lint rule is: a small class that registers itself by its code."""

from __future__ import annotations

import abc
import dataclasses
import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from t5x_harness.lint.program import BINDINGS, Binding, GinProgram, MacroBinding
from t5x_harness.lint.snapshot import Snapshot
from t5x_harness.spec import Finding, Location, Mode, Severity, Stage

__all__ = ["Context", "Example", "Rule", "all_rules", "closest", "did_you_mean", "where"]


@dataclasses.dataclass(frozen=True)
class Example:
    """A config that shows a rule at work; the rule's page prints it and a test runs it.

    Attributes:
      gin: text of the config's own file.
      bindings: what comes from the command line.
      mode: the run mode that was asked for.
      files: further files by name.
    """

    gin: str
    bindings: tuple[str, ...] = ()
    mode: Mode | None = None
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Context:
    """What a rule looks at."""

    program: GinProgram
    snapshot: Snapshot

    def literal(self, target: str, param: str, scope: str = "") -> tuple[Any, Binding | MacroBinding] | None:
        """A parameter's value with macros followed, and the statement that gives it; None if nothing binds it."""
        binding = self.program.lookup(target, param, scope)
        if binding is None:
            return None
        statement = self.program.resolve(binding)
        return statement.value, statement


class Rule(abc.ABC):
    """One kind of mistake.

    A subclass sets the class variables and ``check``; defining it is all it takes to have it run.

    Attributes:
      code: stable id from the failure catalogue.
      severity: of its findings, unless a finding says otherwise.
      title: the mistake in a few words.
      why: what happens on the TPU, and why the rule is worth obeying.
      bad: a config with the mistake.
      good: the same config without it.
      whole_program: whether the rule is only meaningful once every statement has been read.
    """

    code: ClassVar[str]
    severity: ClassVar[Severity] = Severity.ERROR
    title: ClassVar[str]
    why: ClassVar[str]
    bad: ClassVar[Example]
    good: ClassVar[Example]
    whole_program: ClassVar[bool] = False

    _by_code: ClassVar[dict[str, type[Rule]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if inspect.isabstract(cls) or not hasattr(cls, "code"):
            return
        missing = [name for name in ("title", "why", "bad", "good") if not hasattr(cls, name)]
        if missing:
            raise TypeError(f"rule {cls.__qualname__} ({cls.code}) does not set {', '.join(missing)}")
        other = Rule._by_code.get(cls.code)
        if other is not None:
            raise TypeError(
                f"rule {cls.__qualname__} has code {cls.code}, and so has {other.__module__}.{other.__qualname__}"
            )
        Rule._by_code[cls.code] = cls

    @abc.abstractmethod
    def check(self, context: Context) -> Iterator[Finding]:
        """Yields what is wrong with a config."""

    def finding(
        self,
        message: str,
        at: Binding | MacroBinding | Location | None,
        fix: str,
        *,
        severity: Severity | None = None,
        binding: str | None = None,
    ) -> Finding:
        """Builds a finding of this rule at a statement or a place."""
        statement = at if isinstance(at, (Binding, MacroBinding)) else None
        return Finding(
            code=self.code,
            severity=severity or self.severity,
            stage=Stage.LINT,
            message=message,
            location=statement.location if statement is not None else at if isinstance(at, Location) else None,
            fix=fix,
            binding=binding or (str(statement) if statement is not None else None),
        )


def all_rules() -> tuple[type[Rule], ...]:
    """Every rule, ordered by code; imports the modules of ``t5x_harness.lint.rules`` on the way."""
    package = importlib.import_module("t5x_harness.lint.rules")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return tuple(rule for _, rule in sorted(Rule._by_code.items()))


def closest(word: str, choices: Iterable[str]) -> str | None:
    """The one of ``choices`` that ``word`` is most likely a misspelling of; None if none is near."""
    pool = [c for c in choices if c != word]
    folded = {c.replace("_", "").lower(): c for c in pool}
    if (same := folded.get(word.replace("_", "").lower())) is not None:
        return same
    return next(iter(difflib.get_close_matches(word, pool, n=1, cutoff=0.75)), None)


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """``; did you mean X?`` or nothing."""
    near = closest(word, choices)
    return f"; did you mean {near}?" if near else ""


def where(location: Location) -> str:
    """A place in a sentence: ``finetune.gin:12``, or the command line."""
    return "the command line" if location.file == BINDINGS else str(location)
