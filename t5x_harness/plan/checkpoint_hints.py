"""What a difference between a checkpoint and a model usually means, by the names and shapes that differ."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from t5x_harness.plan.checkpoint_fit import CheckpointFit

# The parameters with a row or a column for each token, and which axis that is.
_TOKEN_AXES = {"token_embedder/embedding": 0, "logits_dense/kernel": 1}

_LAYER = re.compile(r"/layers_(\d+)/")
_STACKED = re.compile(r"^target/(?:encoder/encoder|decoder/decoder|encoder/layers|decoder/layers)/")


def of_missing(fit: CheckpointFit) -> str | None:
    """Returns what explains the arrays that a checkpoint lacks, if anything known does."""
    stored = fit.tree.arrays if fit.tree else {}
    return next(_reasons(fit.missing, stored), None)


def _reasons(missing: Collection[str], stored: Collection[str]) -> Iterator[str]:
    lacks_layers, has_layers = any(map(_LAYER.search, missing)), any(map(_LAYER.search, stored))
    if lacks_layers and not has_layers and any(map(_STACKED.match, stored)):
        yield (
            "the checkpoint's layers are stacked in one array each (a scanned model, as of scalable_t5), and this "
            "model's are not"
        )
    if any(map(_STACKED.match, missing)) and has_layers:
        yield "this model's layers are stacked in one array each (scan_layers), and the checkpoint's are not"
    if _any(missing, "/mlp/wi_0/") and _any(stored, "/mlp/wi/"):
        yield "the checkpoint's MLP is not gated (mlp/wi), as in T5 1.0, and this model's is (mlp/wi_0, mlp/wi_1)"
    if _any(missing, "/mlp/wi/") and _any(stored, "/mlp/wi_0/"):
        yield "the checkpoint's MLP is gated (mlp/wi_0, mlp/wi_1), as in T5 1.1, and this model's is not (mlp/wi)"
    for stack in ("encoder", "decoder"):
        ours, theirs = _layers(missing, stack), _layers(stored, stack)
        if theirs and ours and min(ours) == max(theirs) + 1:
            yield f"the checkpoint's {stack} has {max(theirs) + 1} layers, this model's has {max(ours) + 1}"
    if _any(missing, "target/decoder/logits_dense/"):
        yield (
            "the checkpoint's output shares the embedding, as in T5 1.0, and this model's has weights of its own "
            "(logits_via_embedding = False)"
        )
    if missing and not _any(missing, "target/"):
        if _any(stored, "state/param_states/"):
            yield "the checkpoint was written with another optimizer"
        else:
            yield "the checkpoint holds no optimizer state"


def of_shapes(fit: CheckpointFit) -> str | None:
    """Returns what explains arrays of another shape, if anything known does."""
    sizes = vocabulary_sizes(fit)
    if sizes:
        return f"the checkpoint's vocabulary has {sizes[0]} entries and this model's {sizes[1]}"
    if fit.different and all(len(a) > 1 and a == b[::-1] for _, a, b in fit.different):
        return "the arrays are transposed"
    return None


def vocabulary_sizes(fit: CheckpointFit) -> tuple[int, int] | None:
    """Returns the vocabulary sizes of the checkpoint and of the model if the parameters differ in nothing else."""
    parameters = [part for part in fit.different if part[0].startswith("target/")]
    sizes = {_tokens(*part) for part in parameters}
    return sizes.pop() if len(sizes) == 1 else None


def _tokens(name: str, stored: tuple[int, ...], ours: tuple[int, ...]) -> tuple[int, int] | None:
    axis = next((axis for end, axis in _TOKEN_AXES.items() if name.endswith(end)), None)
    if axis is None or len(stored) != 2 or len(ours) != 2 or stored[1 - axis] != ours[1 - axis]:
        return None
    return stored[axis], ours[axis]


def _any(names: Collection[str], part: str) -> bool:
    return any(part in name for name in names)


def _layers(names: Collection[str], stack: str) -> set[int]:
    return {int(found[1]) for name in names if (found := re.match(rf"target/{stack}/layers_(\d+)/", name))}
