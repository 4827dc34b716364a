"""The lint rules, one small module each; a new module here is a new rule, with nothing else to edit."""

from __future__ import annotations

from t5x_harness.findings.rule import rules_in
from t5x_harness.spec import Stage

RULES = rules_in(__name__, __path__, Stage.LINT)
