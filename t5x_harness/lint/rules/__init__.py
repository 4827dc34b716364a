"""The lint rules, one small module each; to add a rule, add a module here; nothing else has to be edited."""

from t5x_harness.findings.rule import rules_in
from t5x_harness.spec import Stage

RULES = rules_in(__name__, Stage.LINT)
