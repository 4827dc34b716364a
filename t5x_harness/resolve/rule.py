"""What a rule of resolve is: it sees the built objects of a run and a sample of its data."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.findings import rule
from t5x_harness.spec import Finding, Location, Stage

if TYPE_CHECKING:
    from t5x_harness.gin.config import BindingKey, GinConfig
    from t5x_harness.resolve.resolved import Resolved


class ConfigRule(rule.Mistake):
    """A rule whose findings point to bindings of a parsed config."""

    def __init__(self, config: GinConfig) -> None:
        self._config = config

    def place(self, at: BindingKey | None) -> tuple[Location | None, str | None]:
        """Returns the line and the name of a binding."""
        return self._config.location(at), at.short if at else None


class ResolveRule(ConfigRule):
    """A mistake that shows in the objects behind the bindings, or in the data."""

    stage = Stage.RESOLVE

    @abc.abstractmethod
    def check(self, run: Resolved) -> Iterator[Finding]:
        """Yields what is wrong with a run."""
