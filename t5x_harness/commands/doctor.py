"""``t5x-harness doctor``: finds parts of this environment that do not work together, and explains how to fix them.

With ``--explain``, it does so for the output of an installation or an import.
"""

import argparse
import contextlib
import dataclasses
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

from t5x_harness.commands.arguments import UsageError
from t5x_harness.commands.explain_log import explain_log
from t5x_harness.doctor import diagnose
from t5x_harness.doctor.check import Diagnosis, Environment
from t5x_harness.report.json import json_text
from t5x_harness.runtime.choice import folders_of
from t5x_harness.settings.forms import SettingsError
from t5x_harness.settings.project import find_project
from t5x_harness.version import __version__

EPILOG = """\
examples:
  t5x-harness doctor                       packages and versions here that do not work together, each with a fix
  pip install … 2>&1 | tee pip.log; t5x-harness doctor --explain pip.log
  python -c "import t5x" 2>&1 | t5x-harness doctor --explain -

--explain names the first package that is wrong in a conflict of pip or uv, or in an error of an import, and the command
that cures it. Its exit status is 0 if a known text was found, and 1 if none was, as after an installation that went
well.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of ``doctor`` to a parser."""
    parser.add_argument("--format", choices=("table", "json"), default="table", help="how to print (default: table)")
    parser.add_argument(
        "--image",
        action="store_true",
        help="inside a container image for TPU jobs: whether T5X, its entry point, the TPU library and every version "
        "are as its Dockerfile says",
    )
    parser.add_argument(
        "--explain",
        metavar="FILE",
        help="the output of pip or uv, or the traceback of an import, on any machine: which package is wrong, and the "
        "command that cures it; - reads it from standard input",
    )


def main(args: argparse.Namespace) -> int:
    """Examines the environment of this process and prints the findings.

    Returns:
      1 if anything is wrong with the environment, otherwise 0; warnings do not count. With ``--explain``, 0 if a text
      of the log is known, otherwise 1.

    Raises:
      UsageError: the log cannot be read, or an image was to be examined at the same time.
    """
    if args.explain is not None:
        if args.image:
            raise UsageError("--explain reads a log, and --image examines this environment: give one of them")
        return explain_log(args.explain, "doctor --explain")
    own: tuple[str, ...] = ()
    with contextlib.suppress(SettingsError):  # the commands that need the table report its mistakes
        own = tuple(find_project(Path.cwd()).python_path)
    diagnoses = diagnose(Environment.read(folders=folders_of(".", own)), of_image=args.image)
    print(as_json(diagnoses) if args.format == "json" else as_table(diagnoses))
    return int(any(d.status == "error" for d in diagnoses))


def as_table(diagnoses: Sequence[Diagnosis]) -> str:
    """Returns the checks as text: one line per check, followed by each of its findings with its fix."""
    width = max(len(d.title) for d in diagnoses)
    lines = [f"t5x-harness {__version__}, Python {platform.python_version()} ({sys.executable})"]
    for diagnosis in diagnoses:
        lines.append(f"{diagnosis.status:8}{diagnosis.code}  {diagnosis.title:{width}}  {diagnosis.summary}")
        for finding in diagnosis.findings:
            lines.append(f"        {finding.severity}: {finding.message}")
            lines.append(f"        fix: {finding.fix}")
    errors = sum(f.severity == "error" for d in diagnoses for f in d.findings)
    warnings = sum(f.severity == "warning" for d in diagnoses for f in d.findings)
    lines.append(f"{errors} error{'' if errors == 1 else 's'}, {warnings} warning{'' if warnings == 1 else 's'}")
    return "\n".join(lines)


def as_json(diagnoses: Sequence[Diagnosis]) -> str:
    """Returns the checks as JSON: ``ok`` and the checks with their findings."""
    value = {
        "version": __version__,
        "python": platform.python_version(),
        "ok": all(d.status != "error" for d in diagnoses),
        "checks": [{"status": d.status, **dataclasses.asdict(d)} for d in diagnoses],
    }
    return json_text(value)
