"""Runs the retry conformance suite of google-cloud-storage, as it is, against the emulated Cloud Storage, and counts.

    python benchmarks/conformance.py CHECKOUT [-k EXPRESSION]

CHECKOUT is a checkout of the client's repository, whose `tests/conformance/test_conformance.py` runs with the client
that is installed here. The suite starts Google's testbench with `docker`: it finds a `docker` on PATH that does
nothing, and the emulated Cloud Storage in STORAGE_EMULATOR_HOST. Nothing else is set or changed.

It prints a line for each scenario, and the names of the cases that do not hold. They take about a quarter of an hour,
most of which the client waits before it tries again.
"""

from __future__ import annotations

import argparse
import collections
import importlib.metadata
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from t5x_harness.vertex.cloud import GoogleSession

SUITE = Path("tests/conformance/test_conformance.py")
OUTCOMES = ("passed", "failed", "skipped")


def run(checkout: Path, folder: Path, expression: str) -> dict[str, str]:
    """Runs the suite; returns the outcome of each of its cases by name.

    Args:
      folder: an empty folder for this call.
    """
    docker = folder / "docker"
    docker.write_text("#!/bin/sh\n")
    docker.chmod(0o755)
    report = folder / "report.xml"
    # `append` keeps the checkout's own copy of the client off the import path.
    options = ["--import-mode=append", "-p", "no:t5x_harness", "-p", "no:cacheprovider", "--tb=no", "-q"]
    with GoogleSession() as session:
        environment = {**os.environ, **session.environment()}
        environment["PATH"] = f"{folder}{os.pathsep}{environment['PATH']}"
        command = [sys.executable, "-P", "-m", "pytest", *options, f"--junit-xml={report}", "-k", expression]
        subprocess.run([*command, str(SUITE)], cwd=checkout, env=environment, check=False)
    return {case.attrib["name"]: _outcome(case) for case in ElementTree.parse(report).iter("testcase")}


def _outcome(case: ElementTree.Element) -> str:
    tags = {child.tag for child in case}
    return "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("-k", dest="expression", default="", help="the cases to run, as pytest selects them")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        outcomes = run(arguments.checkout, Path(name), arguments.expression)
    by_scenario: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for case, outcome in outcomes.items():
        by_scenario[case.split("-")[1]][outcome] += 1
        by_scenario["all"][outcome] += 1
    print(f"google-cloud-storage {importlib.metadata.version('google-cloud-storage')}")
    for scenario, counts in sorted(by_scenario.items()):
        print(scenario, ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES))
    for case in sorted(case for case, outcome in outcomes.items() if outcome == "failed"):
        print(case)


if __name__ == "__main__":
    main()
