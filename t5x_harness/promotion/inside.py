"""Runs one shipped test inside a job's container: ``python -m t5x_harness.promotion.inside``.

The archive is read from, and the outcome written to, paths below ``/gcs/``, which Vertex AI mounts in every container.
"""

import argparse
import os
import platform
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from t5x_harness.promotion.shipped import PackingError, ShippedOutcome, unpack, warning_to_json
from t5x_harness.version import __version__, version_of

_UNPACKING_FAILED = 2
_PLATFORM_OPTIONS = ("jax_platforms", "jax_platform_name")  # the latter is deprecated, and not an attribute in JAX


class Recorder:
    """A pytest plugin that records the reports and warnings of a session that runs one test.

    Args:
      folder: the folder in which the test was unpacked.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.reports: list[Mapping[str, Any]] = []
        self.warnings: list[Mapping[str, Any]] = []
        self.problems: list[str] = []
        self._config: pytest.Config | None = None

    def pytest_configure(self, config: pytest.Config) -> None:
        """Records the configuration, whose hooks serialize reports."""
        self._config = config

    @pytest.hookimpl(trylast=True)  # failed subtests make a test fail only after the terminal reporter's hook
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Records the report of a phase or of a subtest."""
        assert self._config is not None
        self.reports.append(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, when: str) -> None:
        """Records the test's warnings, without those from its collection, which also appear on the sending machine."""
        if when == "runtest":
            self.warnings.append(warning_to_json(warning_message, self._folder))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Records why a module could not be collected."""
        if report.failed:
            self.problems.append(report.longreprtext)


def main(arguments: Sequence[str] | None = None) -> int:
    """Unpacks a test, runs it, and writes its outcome.

    Returns:
      The exit status of the job's container: 0 if the outcome was written, even for a failed test, as the job itself
      did not fail; 2 if the archive cannot be used.
    """
    args = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="t5x-harness-shipped-") as folder:
        try:
            unpack(Path(args.archive).read_bytes(), args.sha256, Path(folder))
        except (OSError, PackingError) as error:
            print(f"t5x_harness.promotion.inside: {args.archive}: {error}", file=sys.stderr)
            return _UNPACKING_FAILED
        if args.live:
            sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        outcome = run_test(args.nodeid, Path(folder), args.ini, args.python_path, live=args.live)
    written = Path(args.outcome)
    written.parent.mkdir(parents=True, exist_ok=True)
    written.write_text(outcome.to_text(), encoding="utf-8")  # an object in a bucket appears when its file is closed
    return 0


def run_test(
    nodeid: str, folder: Path, ini: str | None = None, python_path: Sequence[str] = (), *, live: bool = False
) -> ShippedOutcome:
    """Runs one test with pytest in this process.

    Args:
      nodeid: the test, relative to ``folder``.
      folder: the folder with the test, which becomes the working directory and pytest's root folder.
      ini: pytest's ini file, relative to ``folder``.
      python_path: the folders for the import path, relative to ``folder``.
      live: whether the test's output is shown instead of captured.
    """
    os.chdir(folder)
    sys.path[:0] = [str(folder / path) for path in python_path] + [str(folder)]
    recorder = Recorder(folder)
    # The project's own options, such as --cov or -n, are meant for the developer's machine.
    options = [f"--rootdir={folder}", "-o", "addopts=", "-p", "no:cacheprovider", "-rA", *(["-s"] if live else [])]
    status = pytest.main([*(["-c", ini] if ini else []), *options, nodeid], plugins=[recorder])
    problem = "\n".join(recorder.problems) or f"pytest ended with status {int(status)} and ran no test; see the log"
    return ShippedOutcome(
        nodeid,
        int(status),
        tuple(recorder.reports),
        problem="" if recorder.reports else problem,
        versions=dict(_versions()),
        warnings=tuple(recorder.warnings),
        **_devices(),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m t5x_harness.promotion.inside", description=__doc__)
    parser.add_argument(
        "--archive", required=True, metavar="PATH", help="the packed test, such as /gcs/bucket/test.tar.gz"
    )
    parser.add_argument("--sha256", required=True, metavar="DIGEST", help="what the archive's SHA-256 has to be")
    parser.add_argument("--outcome", required=True, metavar="PATH", help="file to write the outcome to")
    parser.add_argument("--ini", metavar="NAME", help="pytest's ini file in the archive")
    parser.add_argument(
        "--python-path", action="append", default=[], metavar="DIR", help="folder in the archive to import from"
    )
    parser.add_argument("--live", action="store_true", help="do not capture its output")
    parser.add_argument("nodeid", help="the test")
    return parser


def _devices() -> dict[str, Any]:
    """Returns an outcome's fields about JAX; none if the test did not import it, so that its devices are not taken."""
    jax = sys.modules.get("jax")
    if jax is None:
        return {}
    platform_set = any(jax.config.values.get(name) for name in _PLATFORM_OPTIONS)
    try:
        devices = jax.devices()
    except RuntimeError as error:  # one of the requested platforms has no devices
        return {"devices": f"none: {error}", "platform_set": platform_set}
    shown, platform = f"{len(devices)} x {devices[0].device_kind}", devices[0].platform
    return {"devices": shown, "platform": platform, "platform_set": platform_set}


def _versions() -> Iterator[tuple[str, str]]:
    yield "python", platform.python_version()
    yield "t5x-harness", __version__
    for name in ("pytest", "jax"):
        if version := version_of(name):
            yield name, version


if __name__ == "__main__":
    sys.exit(main())
