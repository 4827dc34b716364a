"""Static reading of gin: finds the mistakes in a config without importing T5X, JAX or TensorFlow.

:func:`lint` is the lint stage of a run. :func:`classify` tells run configs from fragments that are only included.
"""

from __future__ import annotations

from t5x_harness.gin.reading import program_of
from t5x_harness.lint.classify import LEFT_TO_LAUNCHER, Classification, FileKind, classify, classify_program
from t5x_harness.lint.stage import lint

__all__ = ["LEFT_TO_LAUNCHER", "Classification", "FileKind", "classify", "classify_program", "lint", "program_of"]
