"""What a mistake is: data, with a code, an explanation and two examples, found at one stage.

What finds it is apart from it: a rule of ``lint``, ``resolve`` or ``plan`` is a mistake with a ``check`` that sees what
its stage knows; others are found by a stage itself, by the patterns of :mod:`t5x_harness.resolve.known_errors`, or
while metrics are called early.  Defining a subclass registers it, and importing a stage's package ``rules`` defines all
of that stage.  Nothing here, and nothing at the top of such a module, imports jax, tensorflow or T5X: mistakes are
listed and explained without them.
"""

from __future__ import annotations

import abc
import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from t5x_harness.spec import Edit, Finding, Location, Mode, Severity, Stage


@dataclasses.dataclass(frozen=True)
class Example:
    """A config that shows a rule at work; the rule's page prints it and a test runs it.

    Attributes:
      gin: text of the config's own file.
      bindings: what comes from the command line.
      mode: the run mode that was asked for.
      files: further files by name: included configs, modules with tasks, data.
      slice: the slice that it is planned for.
      checkpoints: folders of checkpoints, and the config of the run that wrote each.
      golden: the config as it was when its plan was kept as the golden plan; empty where none is kept.
      at: how the line at fault begins, in a bad example; a binding of the command line counts as a line. Empty where no
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


class Mistake(abc.ABC):
    """One kind of mistake.

    Attributes:
      code: stable id from the failure catalogue.
      stage: where it is found; rules have it from the base class of their room.
      severity: of its findings, unless a finding says otherwise.
      title: the mistake in a few words.
      why: what happens on the TPU, and why the rule is worth obeying.
      bad: a config with the mistake.
      good: the same config without it.
    """

    code: ClassVar[str]
    stage: ClassVar[Stage]
    severity: ClassVar[Severity] = Severity.ERROR
    title: ClassVar[str]
    why: ClassVar[str]
    bad: ClassVar[Example]
    good: ClassVar[Example]

    _registered: ClassVar[dict[tuple[Stage, str], type[Mistake]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if inspect.isabstract(cls) or not hasattr(cls, "code"):
            return
        missing = [name for name in ("title", "why", "bad", "good") if not hasattr(cls, name)]
        if missing:
            raise TypeError(f"{cls.__qualname__} ({cls.code}) does not set {', '.join(missing)}")
        other = Mistake._registered.get((cls.stage, cls.code), cls)
        # Where pytester forgot a module that a test had imported, its classes are defined once more.
        if (cls.__module__, cls.__qualname__) != (other.__module__, other.__qualname__):
            raise TypeError(
                f"rule {cls.__qualname__} has code {cls.code}, and so has {other.__module__}.{other.__qualname__}"
            )
        Mistake._registered[cls.stage, cls.code] = cls

    def place(self, at: Any) -> tuple[Location | None, str | None]:
        """Returns where a finding at this statement or binding points to, and the binding's name."""
        return at, None

    def finding(
        self,
        message: str,
        at: Any,
        fix: str,
        *,
        severity: Severity | None = None,
        location: Location | None = None,
        binding: str | None = None,
        edits: tuple[Edit, ...] = (),
    ) -> Finding:
        """Builds a finding of this mistake.

        Args:
          message: what is wrong, with the values that disagree.
          at: what is at fault, as :meth:`place` takes it: it gives the finding its place and name; None for neither.
          fix: the smallest fix.
          severity: where it is not the mistake's own.
          location: a place that is better than that of ``at``, such as a line of the user's module.
          binding: a better name, likewise.
          edits: the same fix for a program to make.
        """
        place, name = self.place(at)
        severity = severity or self.severity
        return Finding(self.code, severity, self.stage, message, location or place, fix, binding or name, edits)

    @classmethod
    def registered(cls, stage: Stage) -> tuple[type[Mistake], ...]:
        """Returns the mistakes of one stage that were defined so far, ordered by code."""
        found = sorted((code, rule) for (at, code), rule in Mistake._registered.items() if at is stage)
        return tuple(rule for _, rule in found)


def import_modules(package: str, path: Iterable[str]) -> None:
    """Imports the modules of a package of rules, which registers them: no list of them has to be kept."""
    for module in pkgutil.iter_modules(path):
        importlib.import_module(f"{package}.{module.name}")
