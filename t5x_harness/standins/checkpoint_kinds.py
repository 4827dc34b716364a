"""How the checkpoint at a path was written, as far as its path and the config tell."""

from __future__ import annotations

import enum
import re

_PUBLISHED = re.compile(r"(?:gs://|/gcs/)(?:t5-data/pretrained_models|scenic-bucket/ul2)/")


class CheckpointKind(enum.Enum):
    """Who wrote a checkpoint, which decides on its layout and on the optimizer whose state is in it.

    ``ORBAX``: T5X as it does by default, with the config's own optimizer.
    ``LEGACY``: T5X with ``use_orbax = False``, in its own older layout (msgpack and zarr).
    ``PUBLISHED``: those who published a model of the T5 family: the older layout, float32, Adafactor's state.
    """

    ORBAX = "orbax"
    LEGACY = "legacy"
    PUBLISHED = "published"


def kind_at(path: str, *, use_orbax: bool) -> CheckpointKind:
    """The kind of the checkpoint that a config names.

    T5X writes orbax's layout since 27 February 2024 (google-research/t5x, 65ce7e9 "Launch Orbax Checkpointing by
    default in t5x").  All models that its docs/models.md lists in ``gs://t5-data/pretrained_models/t5x`` were listed by
    28 March 2023 (cf08499, umT5), and those of UL2 in ``gs://scenic-bucket/ul2`` are of 2022 and of March 2023.  Their
    optimizer is the Adafactor of T5's model gin files: google-research/t5x issues 569 and 1196 are of users whose other
    optimizer could not be restored from them.

    Args:
      path: of the checkpoint, or of the folder that it is in.
      use_orbax: the config's ``use_orbax``; where nothing is known of a path, it is taken to be an earlier run's.
    """
    if _PUBLISHED.match(path):
        return CheckpointKind.PUBLISHED
    return CheckpointKind.ORBAX if use_orbax else CheckpointKind.LEGACY
