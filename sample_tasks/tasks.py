"""Registers every sample task and mixture: the one module that a Gin file imports."""

from __future__ import annotations

import seqio

# Imported for what they register.
from t5x_harness.sample_tasks import (  # noqa: F401
    c4,
    classification,
    question_answering,
    span_corruption,
    streaming,
    sums,
    translation,
)

seqio.MixtureRegistry.add("sample_mixture", [("sample_translate", 3.0), ("sample_answer", 1.0)])
