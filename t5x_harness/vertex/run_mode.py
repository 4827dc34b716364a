"""The run modes of T5X's ``main.py``."""

from __future__ import annotations

import enum

_MEANT = {
    "compile": "precompile",  # its name in the guide of T5X on Vertex AI
    "evaluate": "eval",
    "inference": "infer",
    "pretrain": "train",
    "finetune": "train",
    "train_unfragmented": "train",  # named in T5X's documentation, but never published
}


class RunModeError(ValueError):
    """T5X has no such mode; the message lists its modes, and the one that is probably meant."""


class RunMode(enum.StrEnum):
    """The modes of T5X's ``--run_mode`` that make sense as a job."""

    TRAIN = "train"
    EVAL = "eval"
    INFER = "infer"
    PRECOMPILE = "precompile"

    @classmethod
    def parse(cls, text: str) -> RunMode:
        """Returns the mode of a name.

        Raises:
          RunModeError: there is no such mode.
        """
        try:
            return cls(text)
        except ValueError:
            meant = f"; for {text!r} use {_MEANT[text]}" if text in _MEANT else ""
            raise RunModeError(f"--run_mode {text!r}: T5X's main takes {', '.join(cls)}{meant}") from None
