"""Whether a TFDS dataset is there: if it is not, T5X downloads and prepares it on the hosts of the TPU."""

from __future__ import annotations

import dataclasses
import re

import seqio

from t5x_harness.standins.task_data import out_of_reach
from t5x_harness.upstream.seqio import builder_of


@dataclasses.dataclass(frozen=True)
class TfdsProblem:
    """Why a TFDS dataset cannot be read.

    Attributes:
      name: the dataset as the task names it.
      detail: what TFDS says about the name or version, or the folder that the data should be in.
      can_be_prepared: whether TFDS knows the dataset and could prepare it.
    """

    name: str
    detail: str
    can_be_prepared: bool = False


def tfds_problem(task: seqio.Task, split: str) -> TfdsProblem | None:
    """Returns why a task's TFDS dataset cannot be read.

    Returns None if it can be read, for another kind of source, and for data that is out of reach.
    """
    source = task.source
    if not isinstance(source, seqio.TfdsDataSource) or out_of_reach(task, split):
        return None
    name = str(source.tfds_dataset.get_split_params(split)[0])
    try:
        builder = builder_of(source.tfds_dataset, split)
    except AssertionError as error:  # TFDS asserts that it has the version; its last sentence says which ones it has
        return TfdsProblem(name, str(error).rpartition('}": ')[2].rstrip("."))
    except ValueError as error:  # DatasetNotFoundError, with all names that there are
        return TfdsProblem(name, str(error).splitlines()[0])
    if builder.is_prepared():
        return None
    if builder.version.tfds_version_to_prepare:
        return TfdsProblem(name, f"only TFDS {builder.version.tfds_version_to_prepare} could prepare it")
    generated = sorted({str(builder.canonical_version), str(max(builder.versions))})
    if str(builder.version) not in generated:
        return TfdsProblem(name, f"it generates only {' and '.join(generated)}")
    return TfdsProblem(name, str(builder.data_path), can_be_prepared=True)


def versions_asked(text: str) -> str | None:
    """Returns the versions that the installed TFDS has, as a fix, if SeqIO misses one in a dataset's name."""
    found = re.search(r"TFDS name must contain a version number, got: ([\w./-]+)", text)
    if found is None:
        return None
    import tensorflow_datasets as tfds

    try:
        versions = tfds.builder(found[1]).versions
    except Exception:  # TFDS has no such dataset, which is another matter
        return None
    named = ", ".join(f"{found[1]}:{version}" for version in versions)
    return f"name a version; the installed TFDS has {named}"
