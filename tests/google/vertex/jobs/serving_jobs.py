"""A server of jobs in a process of its own, for tests that end it as nobody should.

usage: serving_jobs.py FOLDER STATE_URL SCRIPT...

Runs a job with each script of a shell, prints their names, and does nothing more until it is ended.
"""

from __future__ import annotations

import sys
from pathlib import Path

from job_service import Service

from t5x_harness.google.vertex.state import open_store


def main(folder: str, url: str, *scripts: str) -> None:
    """Serves."""
    service = Service(Path(folder), open_store(url))
    for script in scripts:
        print(service.shell(script).name, flush=True)
    sys.stdin.read()
    service.api.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
