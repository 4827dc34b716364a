"""What T5X's ``main.py`` is to do."""

from __future__ import annotations

import enum

_MEANT = {
    "compile": "precompile",  # what T5X-on-Vertex's guide calls it
    "evaluate": "eval",
    "inference": "infer",
    "pretrain": "train",
    "finetune": "train",
    "train_unfragmented": "train",  # named by pages of T5X's, and never published
}


class RunModeError(ValueError):
    """T5X has no such mode; the message lists those that it has, and the one that is probably meant."""


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
          RunModeError: there is none.
        """
        try:
            return cls(text)
        except ValueError:
            meant = f"; for {text!r} use {_MEANT[text]}" if text in _MEANT else ""
            raise RunModeError(f"--run_mode {text!r}: T5X's main takes {', '.join(cls)}{meant}") from None
