"""Imports what input pipelines are made with before everything else, so that AutoGraph can begin to convert it."""

from __future__ import annotations

import seqio
import tensorflow

from t5x_harness.upstream.autograph import SEQIO_FUNCTIONS
from t5x_harness.upstream.autograph_sibling import SiblingConversions

MODULES = (seqio, tensorflow)
"""What is now in memory."""

CONVERSIONS = SiblingConversions(SEQIO_FUNCTIONS)
"""Conversions that run in the background; :mod:`t5x_harness.execute.preload` takes them."""
