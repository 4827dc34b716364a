"""What a rule is: one kind of mistake with its code, its explanation and two examples, found at one stage.

The rooms ``lint``, ``resolve`` and ``plan`` each derive their own kind from :class:`Rule`, with a ``check`` that sees
what that stage knows.  Defining a subclass registers it; :func:`all_rules` imports the modules that define them.
Nothing here, and nothing at the top of a module with rules, imports jax, tensorflow or T5X: rules are listed and
explained without them.
"""

from __future__ import annotations

import abc
import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from typing import Any, ClassVar

from t5x_harness.spec import Mode, Severity, Stage

__all__ = ["ROOMS", "Example", "Rule", "all_codes", "all_rules"]

ROOMS: Mapping[Stage, str] = {
    Stage.LINT: "t5x_harness.lint.rules",
    Stage.RESOLVE: "t5x_harness.resolve.rules",
    Stage.PLAN: "t5x_harness.plan.rules",
}
"""The packages whose modules define the rules of a stage."""


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


class Rule(abc.ABC):
    """One kind of mistake.

    Attributes:
      code: stable id from the failure catalogue.
      stage: where it is found; set by each room's own base class.
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

    _registered: ClassVar[dict[tuple[Stage, str], type[Rule]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if inspect.isabstract(cls) or not hasattr(cls, "code"):
            return
        missing = [name for name in ("title", "why", "bad", "good") if not hasattr(cls, name)]
        if missing:
            raise TypeError(f"rule {cls.__qualname__} ({cls.code}) does not set {', '.join(missing)}")
        other = Rule._registered.get((cls.stage, cls.code))
        if other is not None:
            raise TypeError(
                f"rule {cls.__qualname__} has code {cls.code}, and so has {other.__module__}.{other.__qualname__}"
            )
        Rule._registered[cls.stage, cls.code] = cls

    @classmethod
    def registered(cls, stage: Stage) -> tuple[type[Rule], ...]:
        """The rules of one stage that were defined so far, ordered by code."""
        found = sorted((code, rule) for (at, code), rule in Rule._registered.items() if at is stage)
        return tuple(rule for _, rule in found)


def all_rules(*stages: Stage) -> tuple[type[Rule], ...]:
    """Every rule of these stages, or of all, in the order of stages and codes; imports their modules."""
    for stage in stages or ROOMS:
        package = importlib.import_module(ROOMS[stage])
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{module.name}")
    return tuple(rule for stage in stages or ROOMS for rule in Rule.registered(stage))


def all_codes() -> tuple[str, ...]:
    """The codes of every rule, sorted, each once: one mistake may be found at several stages."""
    return tuple(sorted({rule.code for rule in all_rules()}))
