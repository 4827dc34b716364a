"""Makes the job of a packed test, and reads its outcome from the bucket."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence

from t5x_harness.buckets.addresses import GS, mounted
from t5x_harness.buckets.folders import Folder, StagedFile
from t5x_harness.promotion.order import JobOrder
from t5x_harness.promotion.packing import TestArchive
from t5x_harness.promotion.shipped import ShippedOutcome
from t5x_harness.version import __version__
from t5x_harness.vertex.container import ContainerJob
from t5x_harness.vertex.job import SPEC_LABEL, VERSION_LABEL, unique_stamp

_COMMAND = ("python", "-m", "t5x_harness.promotion.inside")
_ARCHIVE, _OUTCOME = "test.tar.gz", "outcome.json"


@dataclasses.dataclass(frozen=True)
class Shipment:
    """A test's job and its files.

    Attributes:
      job: the job that runs the test.
      staged: files that the job needs in the bucket, by ``gs://…`` folders.
    """

    job: ContainerJob
    staged: Mapping[str, Sequence[StagedFile]]


def ship(
    nodeid: str,
    archive: TestArchive,
    order: JobOrder,
    ini: str | None = None,
    python_path: Sequence[str] = (),
    live: bool = False,
) -> Shipment:
    """Makes the job that runs a packed test.

    Args:
      nodeid: the test's node id, relative to the archive's root.
      archive: the packed test.
      order: the order for the job.
      ini: pytest's ini file in the archive.
      python_path: folders in the archive for the import path.
      live: whether the test's output goes to the job's log at once instead of its report.
    """
    stage = f"{GS}{order.target.bucket}/t5x-harness/shipped/{archive.digest[:16]}"
    output = f"{GS}{order.target.bucket}/t5x-harness/runs/{_plain(order.name)}/{unique_stamp()}"
    does = (
        f"--archive={mounted(stage)}/{_ARCHIVE}",
        f"--sha256={archive.digest}",
        *([f"--ini={ini}"] if ini else []),
        *(f"--python-path={folder}" for folder in python_path),
    )
    what = [*does, nodeid, order.target.image, dataclasses.asdict(order.machine), dict(order.env)]
    digest = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:32]
    job = ContainerJob(
        name=f"{_plain(order.name)}-{output.rpartition('/')[2]}",
        target=order.target,
        machine=order.machine,
        command=_COMMAND,
        # A test's name may contain what Vertex AI would expand as a variable.
        args=tuple(
            word.replace("$(", "$$(")
            for word in (*does, *(["--live"] if live else []), f"--outcome={mounted(output)}/{_OUTCOME}", "--", nodeid)
        ),
        timeout=order.timeout,
        output=output,
        env=order.env,
        options=order.options,
        labels={
            **order.labels,
            SPEC_LABEL: digest,
            VERSION_LABEL: __version__.replace(".", "-").replace("+", "-").lower(),
        },
    )
    return Shipment(job, {stage: [StagedFile(_ARCHIVE, archive.content)]})


def read_outcome(folder: Folder) -> ShippedOutcome | None:
    """Reads the outcome that a job wrote into its folder; returns None if there is none.

    Raises:
      ShippedOutcomeError: the file is not an outcome.
      StorageError: the bucket does not exist, or access is refused.
    """
    content = folder.read(_OUTCOME)
    return ShippedOutcome.from_text(content.decode(errors="replace")) if content is not None else None


def _plain(name: str) -> str:
    """Makes a name that is valid for a folder, a job and a label."""
    return "-".join("".join(c if c.isascii() and c.isalnum() else " " for c in name.lower()).split())[:63] or "test"
