"""The embedded T5X runtime: T5X's public interface on today's JAX, Flax, optax, orbax, clu and SeqIO.

T5X and SeqIO: Roberts et al. 2022, arXiv:2203.17189. ``TOUR.md`` beside this file follows one training step.

``import t5x`` imports nothing heavy; ``t5x.models`` and its like are imported when they are first used.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from t5x.version import __version__ as __version__

_MODULES = {
    name: f"t5x.{name}"
    for name in (
        "adafactor",
        "checkpoints",
        "decoding",
        "gin_utils",
        "infer",
        "losses",
        "models",
        "partitioning",
        "state_utils",
        "train_state",
        "trainer",
        "utils",
    )
} | {"checkpointing": "t5x.checkpoints"}


def __getattr__(name: str) -> ModuleType:
    if name not in _MODULES:
        raise AttributeError(f"module 't5x' has no attribute {name!r}", name=name)
    return importlib.import_module(_MODULES[name])


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
