"""One entry point for all run modes of T5X.

usage: python -m t5x.main --run_mode=train|eval|infer --gin_file=RUN.gin [--gin_file=MODEL.gin ...] [--gin.MACRO=VALUE
...]
"""

from __future__ import annotations

import enum
import importlib
import sys
from collections.abc import Sequence

from absl import app, flags, logging
from t5x import _script, config_utils

FLAGS = flags.FLAGS


@enum.unique
class RunMode(enum.Enum):
    """The run mode; each is the name of a module of ``t5x``."""

    TRAIN = "train"
    EVAL = "eval"
    INFER = "infer"
    PRECOMPILE = "precompile"
    EXPORT = "export"


# The names that gin files find in ``__main__``, by mode: the function to run, then others that they refer to.
_NAMES_IN_MAIN = {
    RunMode.TRAIN: ("train",),
    RunMode.EVAL: ("evaluate",),
    RunMode.INFER: ("infer", "create_task_from_tfexample_file"),
    RunMode.PRECOMPILE: ("precompile",),
    RunMode.EXPORT: ("save",),
}
_script.define_config_flags()
flags.DEFINE_boolean("dry_run", False, "Read and log the config, but run nothing.")
flags.DEFINE_enum_class("run_mode", None, RunMode, "What to run.")


def main(argv: Sequence[str]) -> None:
    """Runs the mode that the flags select, with the config that they name.

    Raises:
        app.UsageError: if the command line has other arguments, or no run mode.
    """
    _script.refuse_arguments(argv)
    mode = FLAGS.run_mode
    if mode is None:
        modes = ", ".join(each.value for each in RunMode)
        raise app.UsageError(f"'run_mode' flag must be specified when using main.py. (--run_mode is one of {modes})")
    module = importlib.import_module(f"t5x.{mode.value}")
    for name in _NAMES_IN_MAIN[mode]:
        setattr(sys.modules[__name__], name, getattr(module, name))
    configured = _script.configure(getattr(module, _NAMES_IN_MAIN[mode][0]))
    if FLAGS.dry_run:
        logging.info("The config is read; --dry_run ends here.")
        return
    _script.run_or_exit(configured)


if __name__ == "__main__":
    config_utils.run(main)
