"""What the TPU's compiler finds wrong with the programs of a run."""

from __future__ import annotations

from t5x_harness.findings.rule import import_modules

import_modules(__name__, __path__)
