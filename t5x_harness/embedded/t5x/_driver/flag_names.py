"""The command line flags of the scripts, named as T5X names them."""

from __future__ import annotations

import os

from absl import flags

# Flags are shown under the script that asks for them.
flags.disclaim_key_flags()

# The folder that holds the package, so that ``t5x/configs/runs/pretrain.gin`` is found without a search path.
PACKAGE_PARENT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
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
