"""The versions of T5X's stack that were tested together: the folder ``constraints``, with a file for each Python.

``tox run -e constraints`` writes the files anew. ``t5x.txt`` in the folder has what T5X's main branch imports, by name.
"""

import functools
import sys
from collections.abc import Mapping
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
# A wheel has the folder in the package; in a checkout it stands beside the package.
_FOLDER = next((f for f in (_PACKAGE / "constraints", _PACKAGE.parent / "constraints") if f.is_dir()), _PACKAGE)


def constraints_file() -> Path:
    """Returns the file of constraints for the Python that runs."""
    return _FOLDER / f"py{sys.version_info.major}.{sys.version_info.minor}.txt"


def install_command() -> str:
    """Returns the command that installs what T5X imports, at the versions that were tested together."""
    return f"python -m pip install --constraint {constraints_file()} --requirement {_FOLDER / 't5x.txt'}"


@functools.cache
def tested_versions() -> Mapping[str, str]:
    """Returns the version of each distribution in the file of constraints, by its normalized name.

    It is empty where the package was copied alone, as for a job.
    """
    if not constraints_file().is_file():
        return {}
    lines = constraints_file().read_text(encoding="utf-8").splitlines()
    pins = [line.partition(";")[0].strip() for line in lines if line[:1].isalnum()]
    return dict(pin.split("==") for pin in pins)
