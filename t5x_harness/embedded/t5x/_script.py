"""The frame of ``python -m t5x.train``, ``t5x.eval`` and ``t5x.infer`` around their functions."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gin
import jax
from absl import app, flags, logging
from t5x import config_utils, gin_utils
from t5x._errors import ConfigError, with_hint
from t5x._lazy import seqio, tf

# Flags are listed under the script that defines them.
flags.disclaim_key_flags()

# The folder that holds the package, so that ``t5x/configs/runs/pretrain.gin`` is found without a search path.
PACKAGE_PARENT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_HERE = ["."]


def define_config_flags() -> None:
    """Defines the flags of every script: the config, and where datasets are."""
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
    """Defines the flags for the processes of a GPU cluster and for the folders of cached tasks."""
    flags.DEFINE_list("seqio_additional_cache_dirs", [], "Further folders in which cached SeqIO tasks are looked for.")
    flags.DEFINE_boolean("multiprocess_gpu", False, "Join several processes with GPUs; the next flags say how.")
    flags.DEFINE_string("coordinator_address", None, "HOST:PORT of the process that the others join.")
    flags.DEFINE_integer("process_count", None, "How many processes there are.")
    flags.DEFINE_integer("process_index", None, "Which of them this is, from 0.")
    flags.DEFINE_integer("initialization_timeout", None, "Seconds to wait for the other processes.")


def define_shard_flag() -> None:
    flags.DEFINE_integer("shard_id", None, "Which shard of the data to infer; overrides infer.shard_id of the config.")


flags.disclaim_key_flags()
FLAGS = flags.FLAGS


def join_processes() -> None:
    """Adds the cache folders and, if requested, joins the other processes.

    Raises:
        ValueError: a time limit is given, and T5X takes this JAX for one that does not support it.
    """
    seqio.add_global_cache_dirs(FLAGS.seqio_additional_cache_dirs)
    if not FLAGS.multiprocess_gpu:
        return
    timeout = {"initialization_timeout": FLAGS.initialization_timeout} if FLAGS.initialization_timeout else {}
    if timeout and jax.__version__ < "0.4.15":  # T5X compares them as text, too
        refusal = ValueError(
            f"--initialization_timeout={FLAGS.initialization_timeout} needs JAX 0.4.15, and T5X takes "
            f"{jax.__version__} for an older one"
        )
        raise with_hint(
            refusal, f"it compares versions as text, in which {jax.__version__} is the lower one: leave the flag out"
        )
    logging.info("Joining %s as process %s of %s.", FLAGS.coordinator_address, FLAGS.process_index, FLAGS.process_count)
    jax.distributed.initialize(FLAGS.coordinator_address, FLAGS.process_count, FLAGS.process_index, **timeout)


def shard_arguments(function: str) -> dict[str, Any]:
    """Returns the shard from the command line, which overrides the config's; one of them must give it, as in T5X."""
    if FLAGS.shard_id is not None:
        return {"shard_id": FLAGS.shard_id}
    try:
        gin.query_parameter(f"{function}.shard_id")
    except ValueError:
        raise ConfigError(
            f"nothing says which shard to infer: bind {function}.shard_id in the config (t5x/configs/runs/infer.gin "
            "does), or pass --shard_id"
        ) from None
    return {}


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


def run_script(
    function: Callable[..., Any],
    *,
    define_flags: Callable[[], None] = lambda: None,
    prepare: Callable[[], None] = lambda: None,
    arguments: Callable[[str], Mapping[str, Any]] = lambda function: {},
) -> None:
    """Parses the command line, configures ``function``, which is ``__main__``'s, calls it and ends the program.

    ``define_flags`` defines those that not all scripts take, on which ``prepare`` acts before the config is read, and
    of which ``arguments`` makes keyword arguments for the function of a name, after that.
    """
    define_config_flags()
    define_flags()

    def main(argv: Sequence[str]) -> None:
        refuse_arguments(argv)
        tf.config.experimental.set_visible_devices([], "GPU")  # they are JAX's
        prepare()
        configured = configure(function)
        run_or_exit(lambda: configured(**({} if config_utils.using_fdl() else arguments(function.__name__))))
        jax.effects_barrier()

    config_utils.run(main)


def refuse_arguments(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"Too many command-line arguments: only flags are taken, not {' '.join(argv[1:])}")


def configure(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns ``function``, as a function of ``__main__``, with the arguments from the flags of Gin or Fiddle.

    A mistake in the gin files or bindings ends the program with one message, not a traceback.
    """
    if FLAGS.tfds_data_dir:
        seqio.set_tfds_data_dir_override(FLAGS.tfds_data_dir)
    if config_utils.using_fdl():
        import fiddle  # installed only if it is used

        return fiddle.build(config_utils.config_with_fiddle(function))
    gin.register(function, module="__main__")
    try:
        gin_utils.parse_gin_flags([*FLAGS.gin_search_paths, PACKAGE_PARENT], FLAGS.gin_file, FLAGS.gin_bindings)
    except (AttributeError, OSError, SyntaxError, ValueError) as error:
        logging.debug("The config could not be read.", exc_info=True)
        exit_with(f"the gin config cannot be read: {error}")
    return gin.get_configurable(function)
