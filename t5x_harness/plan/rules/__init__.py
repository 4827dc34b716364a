"""The rules of plan, one module for each topic; new modules here are found automatically."""

from t5x_harness.findings.rule import rules_in
from t5x_harness.spec import Stage

RULES = rules_in(__name__, Stage.PLAN)
