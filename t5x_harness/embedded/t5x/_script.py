"""What ``python -m t5x.train``, ``t5x.eval`` and ``t5x.infer`` do around their function."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gin
import jax
from absl import app, flags, logging
from t5x import config_utils, gin_utils
from t5x._errors import ConfigError
from t5x._lazy import seqio, tf

# Flags are shown under the script that asks for them.
flags.disclaim_key_flags()

# The folder that holds the package, so that ``t5x/configs/runs/pretrain.gin`` is found without a search path.
PACKAGE_PARENT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_HERE = ["."]


def define_config_flags() -> None:
    """Defines what every script takes: the config, and where datasets are."""
    flags.DEFINE_multi_string(
        "gin_file", None, "A gin file. May be given several times: a later file overrides the ones before it."
    )
    flags.DEFINE_multi_string(
        "gin_bindings", [], "A gin binding, such as 'BATCH_SIZE = 8'; --gin.BATCH_SIZE=8 is short for it."
    )
    flags.DEFINE_list(
        "gin_search_paths", _HERE, "Folders, separated by commas, in which relative gin files are looked for, in order."
    )
    flags.DEFINE_string(
        "tfds_data_dir", None, "Folder of the prepared TensorFlow Datasets; overrides what the tasks say."
    )


def define_process_flags() -> None:
    """Defines what joins the processes of a GPU cluster, and the folders of cached tasks."""
    flags.DEFINE_list("seqio_additional_cache_dirs", [], "Further folders in which cached SeqIO tasks are looked for.")
    flags.DEFINE_boolean("multiprocess_gpu", False, "Join several processes with GPUs; the next flags say how.")
    flags.DEFINE_string("coordinator_address", None, "HOST:PORT of the process that the others join.")
    flags.DEFINE_integer("process_count", None, "How many processes there are.")
    flags.DEFINE_integer("process_index", None, "Which of them this is, from 0.")
    flags.DEFINE_integer("initialization_timeout", None, "Seconds to wait for the other processes.")


def define_shard_flag() -> None:
    """Defines which shard of the data to infer."""
    flags.DEFINE_integer("shard_id", None, "Which shard of the data to infer; overrides infer.shard_id of the config.")


def define_dry_run_flag() -> None:
    """Defines the flag that leaves out the run itself."""
    flags.DEFINE_boolean("dry_run", False, "Read and log the config, but run nothing.")


flags.disclaim_key_flags()
FLAGS = flags.FLAGS


@dataclasses.dataclass(frozen=True)
class ScriptOptions:
    """What a script takes besides the flags that all of them take.

    Attributes:
        define_flags: defines further flags.
        prepare: acts on them before the config is read.
        arguments: makes keyword arguments of them for the script's function, once the config is read.
    """

    define_flags: Callable[[], None] = lambda: None
    prepare: Callable[[], None] = lambda: None
    arguments: Callable[[str], Mapping[str, Any]] = lambda function: {}


def _join_processes() -> None:
    """Adds the cache folders and, if asked to, joins the other processes."""
    seqio.add_global_cache_dirs(FLAGS.seqio_additional_cache_dirs)
    if not FLAGS.multiprocess_gpu:
        return
    timeout = {"initialization_timeout": FLAGS.initialization_timeout} if FLAGS.initialization_timeout else {}
    logging.info("Joining %s as process %s of %s.", FLAGS.coordinator_address, FLAGS.process_index, FLAGS.process_count)
    jax.distributed.initialize(FLAGS.coordinator_address, FLAGS.process_count, FLAGS.process_index, **timeout)


def _shard_arguments(function: str) -> dict[str, Any]:
    """Returns the shard of the command line, which goes before that of the config.

    Raises:
        ConfigError: if neither says which; the script refuses to guess, as T5X's does.
    """
    if FLAGS.shard_id is not None:
        return {"shard_id": FLAGS.shard_id}
    try:
        gin.query_parameter(f"{function}.shard_id")
    except ValueError:
        raise ConfigError(
            f"nothing says which shard to infer: bind {function}.shard_id in the config "
            "(t5x/configs/runs/infer.gin does), "
            "or pass --shard_id"
        ) from None
    return {}


PROCESSES = ScriptOptions(define_flags=define_process_flags, prepare=_join_processes)
SHARD = ScriptOptions(define_flags=define_shard_flag, arguments=_shard_arguments)


def read_config(files: Sequence[str] | None, bindings: Sequence[str], search_paths: Sequence[str]) -> None:
    """Reads the gin files and bindings; what is wrong with them ends the program with one message, not a traceback.

    Args:
        files: in order; later ones override.
        bindings: applied after the files.
        search_paths: for relative files; the folder of the ``t5x`` package is searched last.
    """
    try:
        gin_utils.parse_gin_flags([*search_paths, PACKAGE_PARENT], files, bindings)
    except (AttributeError, OSError, SyntaxError, ValueError) as error:
        logging.debug("The config could not be read.", exc_info=True)
        exit_with(f"the gin config cannot be read: {error}")


def exit_with(message: str) -> None:
    """Ends the program with status 1 and ``message`` on standard error."""
    logging.flush()
    sys.exit(f"t5x: error: {message}")


def run_or_exit(function: Callable[[], Any]) -> None:
    """Calls ``function``; a ConfigError ends the program with its message alone."""
    try:
        function()
    except ConfigError as error:
        logging.debug("The config cannot be run.", exc_info=True)
        exit_with(str(error))


def run_script(function: Callable[..., Any], extra: ScriptOptions | None = None) -> None:
    """Parses the command line, configures ``function`` and calls it; returns only by ending the program.

    Args:
        function: ``train``, ``evaluate`` or ``infer`` of the ``__main__`` module.
        extra: what this script takes besides.
    """
    extra = extra or ScriptOptions()
    define_config_flags()
    extra.define_flags()

    def main(argv: Sequence[str]) -> None:
        if len(argv) > 1:
            raise app.UsageError(f"Too many command-line arguments: only flags are taken, not {' '.join(argv[1:])}")
        tf.config.experimental.set_visible_devices([], "GPU")  # they are JAX's
        if FLAGS.tfds_data_dir:
            seqio.set_tfds_data_dir_override(FLAGS.tfds_data_dir)
        extra.prepare()
        if config_utils.using_fdl():
            run_or_exit(build_fiddle(function))
        else:
            configured = gin.configurable(function)
            read_config(FLAGS.gin_file, FLAGS.gin_bindings, FLAGS.gin_search_paths)
            run_or_exit(lambda: configured(**extra.arguments(function.__name__)))
        jax.effects_barrier()

    config_utils.run(main)


def build_fiddle(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns ``function`` configured by the Fiddle flags."""
    import fiddle  # only installed where it is used

    return fiddle.build(config_utils.config_with_fiddle(function))
