"""What users choose between: each an enumeration of strings, so ``Stage.PLAN == "plan"``."""

from __future__ import annotations

import enum


class RuntimeChoice(enum.StrEnum):
    """Which T5X runs; ``AUTO`` is the installed one if there is any, else the embedded one."""

    AUTO = "auto"
    INSTALLED = "installed"
    EMBEDDED = "embedded"


class GcsPaths(enum.StrEnum):
    """What ``gs://`` and ``/gcs`` are to a run; see :attr:`RunSettings.gcs`."""

    FOLDER = "folder"
    FUSE = "fuse"
    OFF = "off"


class StandInPolicy(enum.StrEnum):
    """For what stand-ins are made.

    ``OFF``: for nothing; what cannot be reached fails as it does in T5X.
    ``MISSING``: for what cannot be reached from here.
    ``ALL``: for everything in a bucket or on a hub, within reach or not: the run is the same on every machine.
    """

    OFF = "off"
    MISSING = "missing"
    ALL = "all"


class Mode(enum.StrEnum):
    """Which T5X function a config binds: ``train.train``, ``eval.evaluate`` or ``infer.infer``."""

    TRAIN = "train"
    EVAL = "eval"
    INFER = "infer"


class Stage(enum.StrEnum):
    """One step of a run, in the order in which they run: cheapest first."""

    LINT = "lint"
    RESOLVE = "resolve"
    PLAN = "plan"
    AOT = "aot"
    TRAIN = "train"
    EVAL = "eval"
    INFER = "infer"


class AotMode(enum.StrEnum):
    """How the full-size programs are compiled by the TPU's compiler.

    ``LOWER``: not at all; only lowered for it.
    ``DEPTHS``: at two small numbers of layers, until their memory is assigned, and extrapolated to the config's.
    ``MEMORY``: with all layers, until their memory is assigned.
    ``FULL``: with all layers, to the machine's code.
    """

    LOWER = "lower"
    DEPTHS = "depths"
    MEMORY = "memory"
    FULL = "full"
