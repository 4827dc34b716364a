"""The lint rules, one small module each; a new module here is a new rule, with nothing else to edit."""

from __future__ import annotations

from t5x_harness.findings.rule import import_modules

import_modules(__name__, __path__)
