"""Whether a TFDS dataset is there: T5X downloads and prepares one that is not, on the hosts of the TPU."""

from __future__ import annotations

import dataclasses
import enum
import re

import seqio

from t5x_harness.standins.task_data import out_of_reach
from t5x_harness.upstream.seqio import builder_of


class TfdsState(enum.Enum):
    """Why a dataset cannot be read."""

    UNKNOWN = "unknown"
    NO_SUCH_VERSION = "no such version"
    NOT_PREPARED = "not prepared"


@dataclasses.dataclass(frozen=True)
class TfdsProblem:
    """A dataset that cannot be read.

    Attributes:
      state: why.
      name: as the task names it.
      detail: TFDS' own words on the version, or the folder that the data should be in.
    """

    state: TfdsState
    name: str
    detail: str


def tfds_problem(task: seqio.Task, split: str) -> TfdsProblem | None:
    """Returns why a task's TFDS dataset cannot be read.

    None where it can, for another source, and for one out of reach.
    """
    source = task.source
    if not isinstance(source, seqio.TfdsDataSource) or out_of_reach(task, split):
        return None
    dataset, _ = source.tfds_dataset.get_split_params(split)
    try:
        builder = builder_of(source.tfds_dataset, split)
    except AssertionError as error:  # TFDS asserts that it has the version
        return TfdsProblem(TfdsState.NO_SUCH_VERSION, str(dataset), _last_sentence(error))
    except ValueError as error:  # DatasetNotFoundError, with all names that there are
        return TfdsProblem(TfdsState.UNKNOWN, str(dataset), str(error).splitlines()[0])
    if builder.is_prepared():
        return None
    if builder.version.tfds_version_to_prepare:
        detail = f"only TFDS {builder.version.tfds_version_to_prepare} could prepare it"
        return TfdsProblem(TfdsState.NO_SUCH_VERSION, str(dataset), detail)
    generated = sorted({str(builder.canonical_version), str(max(builder.versions))})
    if str(builder.version) not in generated:
        detail = f"it generates only {' and '.join(generated)}"
        return TfdsProblem(TfdsState.NO_SUCH_VERSION, str(dataset), detail)
    return TfdsProblem(TfdsState.NOT_PREPARED, str(dataset), str(builder.data_path))


def versions_asked(text: str) -> str | None:
    """Returns the versions that the installed TFDS has, as a fix, where SeqIO misses one in a dataset's name.

    Else None.
    """
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


def _last_sentence(error: AssertionError) -> str:
    """Returns ``Dataset c4 cannot be loaded at version 2.2.0, only: 3.1.0.``, what TFDS says last."""
    return str(error).rpartition('}": ')[2].rstrip(".")
