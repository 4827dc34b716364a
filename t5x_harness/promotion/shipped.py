"""What passes between this machine and the job of a shipped test: the packed test, and its outcome.

An archive has the test's module or package, its conftests, and the files that its marker lists. It depends only on the
names and contents of the files, so the same test is the same object in the bucket. The outcome is as pytest wrote it in
the job, and its reports and warnings are repeated here. Pytest can serialize its reports, but not the warnings of a
test.
"""

import builtins
import dataclasses
import gzip
import hashlib
import io
import json
import os
import tarfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Self

import pytest

from t5x_harness.vertex.logs import RanOn

LIMIT = 64 * 2**20
"""The limit for all files together, in bytes; larger files belong in a bucket."""

_CONFTEST = "conftest.py"


class PackingError(ValueError):
    """A test cannot be packed, or an archive is invalid; the message says why and how to fix it."""


def digest_of_archive(content: bytes) -> str:
    """Returns the SHA-256 digest of an archive, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def listed_files(root: Path, module: Path, globs: Sequence[str] = (), settings: Path | None = None) -> tuple[Path, ...]:
    """Returns the sorted files that a test is packed with.

    Args:
      root: pytest's root folder.
      module: the test's module.
      globs: further files, relative to ``root``.
      settings: pytest's ini file.

    Raises:
      PackingError: a file is outside ``root``, or a glob matches nothing.
    """
    root = root.resolve()
    found = {_inside(root, module, "the test's module"), *_package(module)}
    above = (folder / _CONFTEST for folder in module.resolve().parents if folder.is_relative_to(root))
    found.update(conftest for conftest in above if conftest.is_file())
    if settings is not None and settings.is_file() and settings.resolve().is_relative_to(root):
        found.add(settings)
    for glob in globs:
        found.update(_matches(root, glob))
    return tuple(sorted({_inside(root, path, "a file to ship") for path in found}))


def pack(root: Path, files: Sequence[Path]) -> bytes:
    """Packs files into a gzipped tar.

    Args:
      root: the folder to which names in the archive are relative.
      files: the result of :func:`listed_files`.

    Raises:
      PackingError: the files are larger than :data:`LIMIT`, or one cannot be read.
    """
    root = root.resolve()
    if (size := sum(path.stat().st_size for path in files)) > LIMIT:
        largest = max(files, key=lambda path: path.stat().st_size).relative_to(root)
        raise PackingError(
            f"the files to ship have {size / 2**20:.0f} MiB, and {LIMIT // 2**20} MiB is the limit; the largest is "
            f"{largest}: put it into a bucket and read it from there"
        )
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as archive,
    ):
        for path in files:
            content = path.read_bytes()
            entry = tarfile.TarInfo(path.relative_to(root).as_posix())  # without modification time and owner
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def unpack(archive: bytes, digest: str, folder: Path) -> None:
    """Unpacks an archive into an empty folder.

    Raises:
      PackingError: the archive has another digest, or an entry is not a plain file inside the folder.
    """
    if (found := digest_of_archive(archive)) != digest:
        raise PackingError(f"the archive's SHA-256 is {found}, and {digest} was sent: something replaced it")
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as content:
            entries = content.getmembers()
            for entry in entries:
                path = PurePosixPath(entry.name)
                if path.is_absolute() or ".." in path.parts or not path.parts:
                    raise PackingError(f"the archive's entry {entry.name!r} leads out of its folder")
                if not entry.isfile():
                    raise PackingError(f"the archive's entry {entry.name!r} is not a plain file")
            content.extractall(folder, entries, filter="data")
    except (tarfile.TarError, OSError, EOFError) as error:
        raise PackingError(f"the archive cannot be unpacked: {error}") from None


def _inside(root: Path, path: Path, what: str) -> Path:
    resolved = path.resolve()
    if not resolved.is_relative_to(root):
        raise PackingError(
            f"{what}, {path}, lies outside pytest's root folder {root}, so it is not shipped; copy it into the project"
        )
    # The file is packed under its name, even if that is a link, because the test opens it by this name.
    return root / path.absolute().relative_to(root) if path.absolute().is_relative_to(root) else resolved


def _package(module: Path) -> Iterator[Path]:
    """Yields the Python files of the outermost package that contains a module, if any."""
    top = None
    folder = module.parent
    while (folder / "__init__.py").is_file():
        top, folder = folder, folder.parent
    if top is not None:
        yield from (path for path in top.rglob("*.py") if path.is_file())


def _matches(root: Path, glob: str) -> list[Path]:
    pattern = PurePosixPath(glob)
    if pattern.is_absolute() or ".." in pattern.parts:
        raise PackingError(f"files: {glob!r} leads out of pytest's root folder; globs are relative to it")
    found = [path for path in root.glob(glob) if path.is_file() and "__pycache__" not in path.parts]
    if not found:
        folder = f"; for all of a folder write {glob.rstrip('/')}/**/*" if (root / glob).is_dir() else ""
        raise PackingError(f"files: {glob!r} matches no file below {root}{folder}")
    return found


_VERSION = 2


class ShippedOutcomeError(ValueError):
    """A job's output is not the outcome of a test; the message says why."""


class ShipFailed(Exception):
    """A job has no outcome of its test, or an outcome that does not count; the message says why."""


@dataclasses.dataclass(frozen=True)
class ShippedOutcome:
    """The outcome of one test in a job.

    Attributes:
      nodeid: the node id of the test.
      status: pytest's exit status.
      reports: the reports of setup, call and teardown, as pytest serializes them.
      problem: why there are no reports, such as an import error; empty if reports exist.
      devices: JAX's devices, such as ``8 x TPU v3``, or why it had none; empty if the test did not import JAX.
      platform: the platform of these devices: ``tpu``, ``cpu``, …; empty if there are none.
      platform_set: whether JAX's platform was set, as by JAX_PLATFORMS; otherwise JAX chooses the best one it finds.
      versions: the versions of Python, pytest, the harness and JAX.
      warnings: the warnings of the test, as :mod:`t5x_harness.promotion.shipped` serializes them.
    """

    nodeid: str
    status: int
    reports: tuple[Mapping[str, Any], ...] = ()
    problem: str = ""
    devices: str = ""
    platform: str = ""
    platform_set: bool = False
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    warnings: tuple[Mapping[str, Any], ...] = ()

    @property
    def ran_on(self) -> RanOn:
        """The devices that the test's JAX ran on."""
        return RanOn(self.devices, self.platform, self.platform_set, unknown="not looked at: the test imported no JAX")

    @property
    def failed(self) -> bool:
        """Whether one of the test's phases or subtests failed."""
        return any(report["outcome"] == "failed" for report in self.reports)

    def about_versions(self) -> str:
        """Lists the versions in words."""
        return ", ".join(f"{name} {version}" for name, version in self.versions.items())

    def to_text(self) -> str:
        """Serializes the outcome as JSON; values that JSON cannot represent become text."""
        return json.dumps({"version": _VERSION, **dataclasses.asdict(self)}, default=str)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parses the text of :meth:`to_text`.

        Raises:
          ShippedOutcomeError: the text is not an outcome.
        """
        try:
            value = json.loads(text)
            version = value.pop("version")
            if version != _VERSION:
                raise ShippedOutcomeError(
                    f"the report of the job has version {version}, and this t5x-harness reads version {_VERSION}: "
                    "it differs from the image's"
                )
            return cls(**{**value, **{name: tuple(value[name]) for name in ("reports", "warnings")}})
        except (AttributeError, KeyError, TypeError, json.JSONDecodeError) as error:
            raise ShippedOutcomeError(f"the report of the job cannot be read: {error}") from None


class RepeatedReports:
    """The reports and warnings of an outcome, for the local item of its test.

    Args:
      outcome: the outcome from the job.
      item: the local item.
    """

    def __init__(self, outcome: ShippedOutcome, item: pytest.Item) -> None:
        self._outcome = outcome
        self._item = item

    def phase(self, when: str) -> pytest.TestReport | None:
        """Returns the report of a phase; None if there is none."""
        # The last one, because the reports of subtests and of a plugin's reruns come before the test's own.
        found = next((report for report in reversed(self._outcome.reports) if report["when"] == when), None)
        return self._here(found) if found is not None else None

    def repeat_subtests(self) -> ShipFailed | None:
        """Reports each subtest as pytest does; returns a failure if one failed that pytest here does not support."""
        failed = None
        for report in self._outcome.reports:
            if report.get("_report_type") == "SubTestReport":
                if (here := self._here(report)) is not None:
                    self._item.ihook.pytest_runtest_logreport(report=here)
                elif report["outcome"] == "failed":
                    failed = ShipFailed(
                        f"{self._item.name}: a subtest failed in the job, and pytest here knows no subtests: take the "
                        "release of pytest that the image has"
                    )
        return failed

    def repeat_warnings(self) -> None:
        """Adds the test's warnings to this session's warnings."""
        for value in self._outcome.warnings:
            warning = warning_from_json(value, self._item.config.rootpath)
            recorded = {"warning_message": warning, "when": "runtest", "nodeid": self._item.nodeid, "location": None}
            self._item.ihook.pytest_warning_recorded.call_historic(kwargs=recorded)

    def _here(self, report: Mapping[str, Any]) -> pytest.TestReport | None:
        """Makes a report for the local item; None if the local pytest does not support its kind."""
        item, longrepr = self._item, report["longrepr"]
        if isinstance(longrepr, list):  # the reason for skipping, because JSON has no tuples; the file is the local one
            file, line, reason = longrepr
            longrepr = (str(item.path) if Path(file).name == item.path.name else file, line, reason)
        pairs = {name: [*map(tuple, report[name])] for name in ("user_properties", "sections")}
        data = {**report, **pairs, "nodeid": item.nodeid, "location": item.location, "longrepr": longrepr}
        here: pytest.TestReport | None = item.config.hook.pytest_report_from_serializable(config=item.config, data=data)
        return here


def warning_to_json(warning: warnings.WarningMessage, folder: Path) -> dict[str, Any]:
    """Serializes a warning for JSON.

    Args:
      warning: the recorded warning.
      folder: the folder with the unpacked test; files in it are named relative to it.
    """
    file = Path(os.path.abspath(warning.filename))
    return {
        "category": warning.category.__name__,
        "text": str(warning.message),
        "file": str(file.relative_to(folder)) if file.is_relative_to(folder) else str(file),
        "line": warning.lineno,
    }


def warning_from_json(value: Mapping[str, Any], folder: Path) -> warnings.WarningMessage:
    """Makes a warning from the result of :func:`warning_to_json`.

    Warning classes of other libraries are not imported; their names become prefixes of the texts.

    Args:
      value: the serialized warning.
      folder: the folder that the test was packed from.
    """
    name, text = value["category"], value["text"]
    category = getattr(builtins, name, None) or getattr(pytest, name, None)
    if not isinstance(category, type) or not issubclass(category, Warning):
        category, text = UserWarning, f"{name}: {text}"
    return warnings.WarningMessage(text, category, str(folder / value["file"]), int(value["line"]))
