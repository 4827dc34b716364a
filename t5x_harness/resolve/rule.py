"""What a rule of resolve is: it sees the built objects of a run and a sample of its data."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.findings import rule
from t5x_harness.findings.rule import Example
from t5x_harness.spec import Finding, Location, Severity, Stage

if TYPE_CHECKING:
    from t5x_harness.resolve.gin_config import BindingKey, GinConfig
    from t5x_harness.resolve.resolved import Resolved

__all__ = ["ConfigRule", "Example", "ResolveRule"]


class ConfigRule(rule.Mistake):
    """A rule whose findings point to bindings of a parsed config."""

    def finding(
        self,
        config: GinConfig,
        message: str,
        key: BindingKey | None,
        fix: str,
        *,
        severity: Severity | None = None,
        location: Location | None = None,
    ) -> Finding:
        """Builds a finding of this rule.

        Args:
          config: the parsed config.
          message: what is wrong, with the values that disagree.
          key: the binding at fault, which gives the finding its place and name; None where there is none.
          fix: the smallest mend.
          severity: where it is not the rule's own.
          location: a place that is better than the binding's, such as a line of the user's module.
        """
        return Finding(
            self.code,
            severity or self.severity,
            self.stage,
            message,
            location or config.location(key),
            fix,
            key.short if key else None,
        )


class ResolveRule(ConfigRule):
    """A mistake that shows in the objects behind the bindings, or in the data."""

    stage = Stage.RESOLVE

    @abc.abstractmethod
    def check(self, run: Resolved) -> Iterator[Finding]:
        """Yields what is wrong with a run."""
