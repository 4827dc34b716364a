"""What input pipelines are made with, imported before the rest: AutoGraph's conversions of it can begin meanwhile."""

from __future__ import annotations

import seqio
import tensorflow

from t5x_harness.upstream.autograph import SEQIO_FUNCTIONS
from t5x_harness.upstream.autograph_sibling import SiblingConversions

MODULES = (seqio, tensorflow)
"""What is now in memory."""

CONVERSIONS = SiblingConversions(SEQIO_FUNCTIONS)
"""On their way, for who imports the rest to take."""
