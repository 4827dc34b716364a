"""The rules of plan, one small module for each concept; a new module here is found by itself."""

from __future__ import annotations

from t5x_harness.findings.rule import import_modules

import_modules(__name__, __path__)
