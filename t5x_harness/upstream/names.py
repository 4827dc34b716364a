"""Every private name of another library that the harness uses; ``t5x-harness doctor`` checks for them.

The libraries are not imported. A test compares this table with the code of this folder.
"""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Library:
    """A distribution, and its private names that a module of the harness uses.

    Attributes:
      name: the name of the distribution.
      code: the file of the harness that uses the names.
      names: the names, separated by spaces, by file relative to the folder that the distribution is installed in.
    """

    name: str
    code: str
    names: Mapping[str, str]

    @property
    def count(self) -> int:
        """The number of names."""
        return sum(len(names.split()) for names in self.names.values())

    def missing(self, folder: str | Path) -> tuple[str, ...] | None:
        """Finds the names that the installed release no longer has.

        Args:
          folder: the folder in which the distribution is installed.

        Returns:
          A text such as ``_load_model of seqio/vocabularies.py`` for each; None if none of the files can be read.
        """
        found: list[str] = []
        files_read = 0
        for file, names in self.names.items():
            try:
                text = Path(folder, file).read_text(encoding="utf-8")
                files_read += 1
            except OSError:
                text = ""
            found += [f"{name} of {file}" for name in names.split() if not re.search(rf"\b{name}\b", text)]
        return tuple(found) if files_read else None


_JOB_SERVICE = "google/cloud/aiplatform_v1/services/job_service/transports"

LIBRARIES = (
    Library("gin-config", "t5x_harness/upstream/gin.py", {"gin/config.py": "_CONFIG _FILE_READERS _OPERATIVE_CONFIG"}),
    Library(
        "google-cloud-aiplatform",
        "t5x_harness/upstream/google_sdk.py",
        {
            "google/cloud/aiplatform/metadata/metadata.py": "_experiment_tracker",
            f"{_JOB_SERVICE}/grpc.py": "_grpc_channel _logged_channel _stubs",
            f"{_JOB_SERVICE}/rest_base.py": "_get_http_options",
        },
    ),
    Library(
        "jax",
        "t5x_harness/upstream/jax.py",
        {
            "jax/_src/lru_cache.py": "_CACHE_SUFFIX",
            "jax/_src/cache_key.py": "_hash_accelerator_config _hash_devices",
            "jax/_src/compiler.py": "_cache_read _compile_and_write_cache",
            "jax/_src/distributed.py": "initialize State",
            "jax/_src/xla_bridge.py": "backends",
            "jax/_src/interpreters/mlir.py": "_platform_specific_lowerings",
        },
    ),
    Library(
        "orbax-checkpoint",
        "t5x_harness/upstream/short_run.py",
        {"orbax/checkpoint/_src/serialization/jax_array_handlers.py": "_array_metadata_store"},
    ),
    Library(
        "pytest",
        "t5x_harness/upstream/pytest.py",
        {
            "_pytest/_io/terminalwriter.py": "_file",
            "_pytest/fixtures.py": "_ispytest",
            "_pytest/main.py": "_fixturemanager",
            "_pytest/outcomes.py": "_use_item_location",
            "_pytest/python.py": "_fixtureinfo",
            "_pytest/terminal.py": "_tw",
            "_pytest/tmpdir.py": "_tmp_path_factory",
        },
    ),
    Library("pytest-xdist", "t5x_harness/upstream/pytest.py", {"xdist/scheduler/loadgroup.py": "_split_scope"}),
    Library(
        "seqio",
        "t5x_harness/upstream/seqio.py",
        {
            "seqio/dataset_providers.py": (
                "_cache_dir _dataset_fn _get_cached_source _metric_fn_constructor_args _metric_objs_constructor_args "
                "_num_input_examples _preprocess_dataset _preprocessor_constructor_args _source _split_to_filepattern "
                "_splits _stats _task_to_rate"
            ),
            "seqio/utils.py": "_builder_kwargs _get_builder _map_split _split_map",
            "seqio/vocabularies.py": "_load_model _sentencepiece_model_file",
        },
    ),
    Library(
        "tensorflow",
        "t5x_harness/upstream/tensorflow.py",
        {
            "tensorflow/python/data/ops/dataset_ops.py": "_apply_debug_options",
            "tensorflow/python/data/ops/readers.py": "_create_or_validate_filenames_dataset",
            "tensorflow/python/eager/context.py": "_initialized",
        },
    ),
    Library(
        "tensorflow",
        "t5x_harness/upstream/autograph.py",
        {
            "tensorflow/python/autograph/impl/api.py": "_TRANSPILER",
            "tensorflow/python/autograph/pyct/transpiler.py": "_PythonFnFactory _cache _name _unbound_factory",
        },
    ),
    Library(
        "tensorflow-datasets",
        "t5x_harness/upstream/seqio.py",
        {
            "tensorflow_datasets/core/dataset_builder.py": "_log_download_bytes _log_download_done _split_generators",
            "tensorflow_datasets/core/features/sequence_feature.py": "_length",
        },
    ),
)
