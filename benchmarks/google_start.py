"""Measures how long an emulated Google Cloud takes to start and to end.

    python benchmarks/google_start.py [--rounds 5] [--write docs/performance.md]

Each round measures one figure after another, so that a machine whose speed drifts slows all of them alike:

python    starting Python and importing nothing, `python -c pass`
start     from the call of `GoogleSession.start()` until every port answers
end       from the call of `close()` until the process and its folder are gone

Figures are medians over the rounds; ratios are made inside each round first.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import time

from reporting import report

from t5x_harness.vertex.cloud import GoogleSession


def measure() -> dict[str, float]:
    """Makes one round."""
    times = [time.perf_counter()]
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    times.append(time.perf_counter())
    session = GoogleSession()
    session.start()
    times.append(time.perf_counter())
    session.close()
    times.append(time.perf_counter())
    python, start, end = (after - before for before, after in itertools.pairwise(times))
    return {"python": python, "start": start, "end": end, "start / python": start / python}


if __name__ == "__main__":
    report("google_start", measure, rounds=5, description=__doc__)
