"""The mistakes that the TPU's compiler finds in the programs of a run."""

from __future__ import annotations

from t5x_harness.findings.rule import rules_in
from t5x_harness.spec import Stage

RULES = rules_in(__name__, __path__, Stage.AOT)
