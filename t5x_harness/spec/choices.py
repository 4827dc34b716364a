"""The values that users choose between: each is an enumeration of strings, so ``Stage.PLAN == "plan"``."""

import enum
from typing import Self


class RuntimeChoice(enum.StrEnum):
    """Which T5X runs; ``AUTO`` is the installed one if one is installed, else the embedded one."""

    AUTO = "auto"
    INSTALLED = "installed"
    EMBEDDED = "embedded"


class GcsPaths(enum.StrEnum):
    """What ``gs://`` and ``/gcs`` mean in a run; see :attr:`RunSettings.gcs`."""

    FOLDER = "folder"
    FUSE = "fuse"
    OFF = "off"


class Hosts(enum.StrEnum):
    """What the hosts of a slice are in a run here.

    ``ONE``: one process, which has the devices of all hosts.
    ``EMULATED``: a process for each, which JAX joins to a pod.
    """

    ONE = "one"
    EMULATED = "emulated"


class StandInPolicy(enum.StrEnum):
    """The things that generated stand-ins replace.

    ``OFF``: nothing; anything unavailable fails as it does in T5X.
    ``MISSING``: anything that is not available here.
    ``ALL``: everything in a bucket or on a hub, available or not, so that the run is the same on every machine.
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
    """One step of a run, in the order in which the steps run, cheapest first. Each step needs those before it.

    Attributes:
      counts: the things that it counts as its work.
      modes: the modes whose runs execute it; empty for a stage before execution, which runs of all modes have.
    """

    _value_: str
    counts: str
    modes: tuple[Mode, ...]

    def __new__(cls, name: str, counts: str = "", *modes: Mode) -> Self:
        """Makes a stage that equals its name."""
        stage = str.__new__(cls, name)
        stage._value_, stage.counts, stage.modes = name, counts, modes
        return stage

    LINT = "lint", "statements read"
    RESOLVE = "resolve", "examples read"
    PLAN = "plan", "arrays planned"
    AOT = "aot", "programs compiled"
    TRAIN = "train", "steps trained", Mode.TRAIN
    EVAL = "eval", "examples evaluated", Mode.TRAIN, Mode.EVAL
    INFER = "infer", "lines inferred", Mode.TRAIN, Mode.INFER
    RESUME = "resume", "steps, chunks or passes after a restart", *Mode

    @property
    def executes(self) -> bool:
        """Whether it executes T5X: a promoted run executes these stages in its job, and all earlier ones here."""
        return bool(self.modes)


class AotMode(enum.StrEnum):
    """How the TPU's compiler compiles the full-size programs.

    ``LOWER``: not at all; they are only lowered for it.
    ``DEPTHS``: at two small numbers of layers, until their memory is assigned, and extrapolated to the config's.
    ``MEMORY``: with all layers, until their memory is assigned.
    ``FULL``: with all layers, to machine code.
    """

    LOWER = "lower"
    DEPTHS = "depths"
    MEMORY = "memory"
    FULL = "full"
