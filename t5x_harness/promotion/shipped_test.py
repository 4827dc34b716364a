"""A test that runs as a whole in a job: packs and submits it, follows the job, and fetches the outcome."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from t5x_harness.buckets.addresses import GS, mounted
from t5x_harness.buckets.folders import Folder, StagedFile, StorageError
from t5x_harness.promotion.jobs import REFUSALS, JobNotSent, PromotedJobs
from t5x_harness.promotion.marker import ResourcesError
from t5x_harness.promotion.order import JobOrder
from t5x_harness.promotion.results import ending
from t5x_harness.promotion.shipped import (
    PackingError,
    ShipFailed,
    ShippedOutcome,
    ShippedOutcomeError,
    digest_of_archive,
    listed_files,
    pack,
)
from t5x_harness.system.diagnosis import read_tail
from t5x_harness.vertex.container import ContainerJob
from t5x_harness.vertex.job import digest_of, labels_of, plain_name, unique_stamp
from t5x_harness.vertex.launching import LaunchedJob

_COMMAND = ("python", "-m", "t5x_harness.promotion.inside")
_ARCHIVE, _OUTCOME = "test.tar.gz", "outcome.json"


@dataclasses.dataclass(frozen=True)
class LocalTest:
    """A test as pytest has collected it here.

    Attributes:
      name: the name of the test.
      nodeid: its node id, relative to ``root``.
      root: pytest's root folder.
      file: the file of the test.
      globs: the globs of further files that it needs.
      ini: pytest's ini file.
      python_path: the folders to import from.
      live: whether the test's output goes to the job's log at once instead of to its report.
    """

    name: str
    nodeid: str
    root: Path
    file: Path
    globs: Sequence[str]
    ini: Path | None
    python_path: Sequence[Path]
    live: bool

    def shipment(self, order: JobOrder) -> tuple[ContainerJob, Mapping[str, Sequence[StagedFile]]]:
        """Packs the test; returns the job that runs it, and the files that the job needs, by ``gs://…`` folders.

        Raises:
          PackingError: a file that it needs does not exist or cannot be packed.
        """
        files = listed_files(self.root, self.file, self.globs, self.ini)
        archive = pack(self.root, files)
        sha256 = digest_of_archive(archive)
        stage = f"{GS}{order.target.bucket}/t5x-harness/shipped/{sha256[:16]}"
        name, stamp = plain_name(order.name, "test"), unique_stamp()
        output = f"{GS}{order.target.bucket}/t5x-harness/runs/{name}/{stamp}"
        folders = [path.relative_to(self.root) for path in self.python_path if path.is_relative_to(self.root)]
        does = (
            f"--archive={mounted(stage)}/{_ARCHIVE}",
            f"--sha256={sha256}",
            *(f"--ini={path.relative_to(self.root).as_posix()}" for path in files if path == self.ini),
            *(f"--python-path={folder.as_posix()}" for folder in folders),
        )
        digest = digest_of([*does, self.nodeid, order.target.image, dataclasses.asdict(order.machine), dict(order.env)])
        written = [*(["--live"] if self.live else []), f"--outcome={mounted(output)}/{_OUTCOME}", "--", self.nodeid]
        job = dataclasses.replace(
            order,
            name=f"{name}-{stamp}",
            command=_COMMAND,
            # A test's name may contain text that Vertex AI would expand as a variable.
            args=tuple(word.replace("$(", "$$(") for word in (*does, *written)),
            output=output,
            labels={**order.labels, **labels_of(digest)},
        )
        return job, {stage: [StagedFile(_ARCHIVE, archive)]}


class ShippedTest:
    """The job of one test.

    Args:
      test: the test.
      order: returns the order for its job, called when it is submitted.
      jobs: returns the jobs of the session.

    Attributes:
      outcome: the outcome that the job wrote; None before :meth:`wait`.
      message: a text about the job and the devices that the test ran on.
      properties: the same facts by name, for JUnit.
    """

    def __init__(self, test: LocalTest, order: Callable[[], JobOrder], jobs: Callable[[], PromotedJobs]) -> None:
        self.outcome: ShippedOutcome | None = None
        self.message = ""
        self.properties: list[tuple[str, str]] = []
        self._test = test
        self._find_order = order
        self._find_jobs = jobs
        self._submitted: LaunchedJob | None = None
        self._problem: Exception | None = None
        self._order: JobOrder | None = None

    @property
    def is_pending(self) -> bool:
        """Whether the job has not been submitted yet."""
        return self._submitted is None and self._problem is None

    def submit(self) -> None:
        """Submits the job unless this was already tried; an error is kept for :meth:`wait`."""
        if not self.is_pending:
            return
        try:
            self._order = self._find_order()
            self._submitted = self._find_jobs().send(*self._test.shipment(self._order))
        except (*REFUSALS, JobNotSent, PackingError, ResourcesError) as error:
            self._problem = error

    def wait(self, folder: Path, on_progress: Callable[[Mapping[str, Any]], None]) -> None:
        """Waits until the job ends, and reads its outcome.

        Args:
          folder: a folder for the job's log.
          on_progress: called with the progress of the job.

        Raises:
          ShipFailed: there is no outcome, or the outcome does not count.
          JobNotSent: the session sends no jobs.
        """
        if isinstance(self._problem, JobNotSent):
            raise self._problem
        if self._submitted is None or self._order is None:
            raise ShipFailed(f"{self._test.name} was not sent as a job: {self._problem}")
        outcome = self._followed(self._submitted, folder, on_progress)
        tpu, emulated = self._order.machine.is_tpu, self._find_jobs().emulated
        devices, versions = outcome.ran_on.about(tpu=tpu, emulated=emulated), outcome.about_versions()
        self.properties += [("t5x.devices", devices), ("t5x.versions", versions)]
        self.message += f"\ndevices: {devices}\nversions: {versions}"
        self.outcome = outcome
        if tpu and outcome.ran_on.fell_back and not emulated and not outcome.failed:
            # The job paid for a TPU, and ran on its host's CPU.
            name, machine = self._submitted.submitted.display_name, str(self._order.machine)
            message, fix = outcome.ran_on.no_tpu(name, machine)
            meant = "A test for the CPU sets JAX_PLATFORMS=cpu"
            raise ShipFailed(f"{self._test.name}: {message}\n    fix: {fix}. {meant}")

    def _followed(
        self, launched: LaunchedJob, folder: Path, on_progress: Callable[[Mapping[str, Any]], None]
    ) -> ShippedOutcome:
        name, job = self._test.name, launched.submitted
        log = folder / f"{job.id}.log"
        ended = self._find_jobs().follow(launched, log, on_progress)
        pages = [("t5x.job_url", job.url)] if job.url else []
        self.properties += [("t5x.job", job.name), *pages, ("t5x.state", str(ended.outcome))]
        self.message = f"{job.display_name}: {ended.outcome or ended.problem}\n{job.page}"
        try:
            content = Folder(job.output, job.target.project).read(_OUTCOME)
            outcome = ShippedOutcome.from_text(content.decode(errors="replace")) if content is not None else None
        except (ShippedOutcomeError, StorageError) as error:
            raise ShipFailed(f"{name}: the outcome cannot be read: {error}") from None
        if not ended.succeeded:
            _, message, fix = ending(ended, job, shipped=True)
            tail = read_tail(log) if log.exists() else "; ".join(ended.notes)
            raise ShipFailed(f"{name}: {message}\n    fix: {fix}\nthe end of the job's log:\n{tail}")
        if outcome is None:
            raise ShipFailed(f"{name}: the job {job.display_name} ended well and left no outcome in {job.output}")
        if outcome.problem:
            raise ShipFailed(f"{name}: it did not run in the job {job.display_name}:\n{outcome.problem}")
        return outcome
