"""Mistakes, and rules: a rule is the way in which one stage finds a mistake.

A :class:`Mistake` is data: a code, an explanation and two examples, written once for all stages that find it.  A
:class:`Rule` is built from a function by the ``finds`` of its room: the function looks at its stage's data and yields
its findings.  A module's ``FOUND_BY_STAGE`` has the mistakes that a stage finds while it works, by name.  Nothing
here, and nothing at the top of a module of rules, imports JAX, TensorFlow or T5X: mistakes are listed and explained
without them.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from t5x_harness.spec import Edit, Finding, Location, Mode, Severity, Stage


@dataclasses.dataclass(frozen=True)
class Example:
    """A config that shows a rule at work; the rule's page prints it and a test runs it.

    Attributes:
      gin: the text of the config's own file.
      bindings: the bindings of the command line.
      mode: the requested run mode.
      files: further files by name: included configs, modules with tasks, data.
      slice: the slice that the config is planned for.
      checkpoints: folders of checkpoints, and the config of the run that wrote each.
      golden: the config from which the golden plan was made; empty if it has none.
      at: the beginning of the line at fault, in a bad example; a command-line binding counts as a line. Empty if no
        line is at fault.
    """

    gin: str
    bindings: tuple[str, ...] = ()
    mode: Mode | None = None
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    slice: str = "v3-8"
    checkpoints: Mapping[str, str] = dataclasses.field(default_factory=dict)
    golden: str = ""
    at: str = ""


@dataclasses.dataclass(frozen=True, eq=False)
class Mistake:
    """One kind of mistake.

    Attributes:
      code: the stable id from the failure catalog.
      title: the mistake in a few words.
      why: the effect on the TPU, and the reason to obey the rule.
      bad: a config with the mistake.
      good: the same config without it.
      severity: the severity of its findings, unless a finding has its own.
      later: the cases that only a later stage can find, in words; empty if there are none.
    """

    code: str
    title: str
    _: dataclasses.KW_ONLY
    why: str
    bad: Example
    good: Example
    severity: Severity = Severity.ERROR
    later: str = ""


@dataclasses.dataclass(frozen=True)
class Found:
    """A mistake that a rule found, before it becomes a finding.

    Attributes:
      message: a description of the mistake, with the values that disagree.
      at: the stage's object at fault, which gives the finding its place and name; None for neither.
      fix: the smallest fix.
      severity: the severity, if it differs from the mistake's.
      location: a place that is better than that of ``at``, such as a line of the user's module.
      binding: a name that is better than that of ``at``.
      edits: the same fix in a form that programs can apply.
    """

    message: str
    at: Any
    fix: str
    _: dataclasses.KW_ONLY
    severity: Severity | None = None
    location: Location | None = None
    binding: str | None = None
    edits: tuple[Edit, ...] = ()


Subject = TypeVar("Subject")
Check = Callable[[Subject], Iterator[Found]]
PlaceOf = Callable[[Any], tuple[Location | None, str | None]]
"""Returns the place and the name of the object that a rule reports as at fault."""


@dataclasses.dataclass(frozen=True, eq=False)
class Rule(Generic[Subject]):
    """The way in which a stage finds a mistake.

    Attributes:
      mistake: the mistake that is found.
      stage: the stage that finds it.
      check: yields the faults in the stage's data; None if the stage itself finds the mistake.
      whole_program: whether lint applies it only after every statement has been read.
      name: the name for tools that show rules by name, such as ``UnreadMacro``.
    """

    mistake: Mistake
    stage: Stage
    check: Check[Subject] | None = None
    whole_program: bool = False
    name: str = ""

    @property
    def code(self) -> str:
        """The mistake's code."""
        return self.mistake.code

    def findings(self, subject: Subject, place: PlaceOf) -> Iterator[Finding]:
        """Yields the rule's findings in a subject."""
        for found in self.check(subject) if self.check is not None else ():
            location, name = place(found.at)
            yield Finding(
                self.code,
                found.severity or self.mistake.severity,
                self.stage,
                found.message,
                found.location or location,
                found.fix,
                found.binding or name,
                found.edits,
            )


def rule_of(mistake: Mistake, stage: Stage, check: Check[Subject], *, whole_program: bool = False) -> Rule[Subject]:
    """Turns a function into a rule; the rule of ``unread_macro`` is named ``UnreadMacro``."""
    name = "".join(word[0].upper() + word[1:] for word in check.__name__.split("_"))
    return Rule(mistake, stage, check, whole_program, name)


def rules_in(package: str, path: Iterable[str], stage: Stage) -> tuple[Rule[Any], ...]:
    """Collects the rules that the modules of a package define, ordered by code, so that no list of them has to be kept.

    Args:
      package: its full name.
      path: its folders.
      stage: the stage whose rules they are.

    Raises:
      TypeError: two rules find mistakes with the same code.
    """
    found: dict[str, Rule[Any]] = {}
    for module in pkgutil.iter_modules(path):
        names = vars(importlib.import_module(f"{package}.{module.name}"))
        by_stage: Mapping[str, Mistake] = names.get("FOUND_BY_STAGE", {})
        made = [value for value in names.values() if isinstance(value, Rule)]
        for rule in (*made, *(Rule[Any](mistake, stage, name=name) for name, mistake in by_stage.items())):
            other = found.setdefault(rule.code, rule)
            if other is not rule:
                raise TypeError(f"two rules of {stage} find {rule.code}: {other.name} and {rule.name}")
    return tuple(rule for _, rule in sorted(found.items()))
