"""One entrance to the run modes of T5X.

usage: python -m t5x.main --run_mode=train|eval|infer --gin_file=RUN.gin [--gin_file=MODEL.gin ...] [--gin.MACRO=VALUE
...]
"""

from __future__ import annotations

import enum
import importlib
import sys
from collections.abc import Sequence

import gin
from absl import app, flags, logging
from t5x import _script, config_utils
from t5x._lazy import seqio

FLAGS = flags.FLAGS


@enum.unique
class RunMode(enum.Enum):
    """What to run; each is the name of a module of ``t5x``."""

    TRAIN = "train"
    EVAL = "eval"
    INFER = "infer"
    PRECOMPILE = "precompile"
    EXPORT = "export"


# Per mode what gin files find in ``__main__``: the function to run, then what else they refer to.
_NAMES_IN_MAIN = {
    RunMode.TRAIN: ("train",),
    RunMode.EVAL: ("evaluate",),
    RunMode.INFER: ("infer", "create_task_from_tfexample_file"),
    RunMode.PRECOMPILE: ("precompile",),
    RunMode.EXPORT: ("save",),
}
_script.define_config_flags()
_script.define_dry_run_flag()
flags.DEFINE_enum_class("run_mode", None, RunMode, "What to run.")


def main(argv: Sequence[str]) -> None:
    """Runs the mode that the flags ask for, with the config that they name.

    Args:
        argv: the command line without its flags: the program's name alone.

    Raises:
        app.UsageError: if there is more on the command line, or no run mode.
    """
    if len(argv) > 1:
        raise app.UsageError(f"Too many command-line arguments: only flags are taken, not {' '.join(argv[1:])}")
    mode = FLAGS.run_mode
    if mode is None:
        modes = ", ".join(each.value for each in RunMode)
        raise app.UsageError(f"'run_mode' flag must be specified when using main.py. (--run_mode is one of {modes})")
    module = importlib.import_module(f"t5x.{mode.value}")
    for name in _NAMES_IN_MAIN[mode]:
        setattr(sys.modules[__name__], name, getattr(module, name))
    function = getattr(module, _NAMES_IN_MAIN[mode][0])
    if FLAGS.tfds_data_dir is not None:
        seqio.set_tfds_data_dir_override(FLAGS.tfds_data_dir)
    if config_utils.using_fdl():
        configured = _script.build_fiddle(function)
    else:
        gin.register(function, module="__main__")
        _script.read_config(FLAGS.gin_file, FLAGS.gin_bindings, FLAGS.gin_search_paths)
        configured = gin.get_configurable(function)
    if FLAGS.dry_run:
        logging.info("The config is read; --dry_run ends here.")
        return
    _script.run_or_exit(configured)


if __name__ == "__main__":
    config_utils.run(main)
