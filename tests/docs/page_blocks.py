"""The blocks of a page, and a way to run them as a reader does."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path


def blocks(page: str, language: str) -> list[str]:
    """The texts of a page's blocks in one language, in their order; each ends with a line feed."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


def bash(script: str, folder: Path, environment: Mapping[str, str]) -> str:
    """Runs a script as Bash does that stops at the first error; returns what it prints."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
