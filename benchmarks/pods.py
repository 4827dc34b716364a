"""Measures what each host of an emulated pod costs: seconds, and memory that it does not share with the others.

    python benchmarks/pods.py [--rounds 3]

The same tiny training runs as one process and on pods of 2, 4 and 8 hosts, each of which has 4 devices. The seconds are
those of all stages, without imports. Memory is the proportional set size of the largest process of the run.
"""

import argparse
import contextlib
import statistics
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from memory import proportional_bytes

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = "sample_tasks/configs"
CONFIG = "pretrain_span_corruption.gin"
SLICES = {1: "v4-8", 2: "v4-16", 4: "v4-32", 8: "v4-64"}
_NAME = "t5x-run"


def processes() -> Iterator[int]:
    """Yields the processes of runs."""
    for name in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):  # it has ended
            if name.read_text().strip() == _NAME:
                yield int(name.parent.name)


class Watch:
    """Keeps the largest memory of a host while runs work."""

    def __init__(self) -> None:
        self.most = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(0.5):
            self.most = max([self.most, *map(proportional_bytes, processes())])

    def end(self) -> int:
        """Returns the largest memory, in bytes."""
        self._over.set()
        self._thread.join()
        return self.most


def measure(hosts: int) -> tuple[float, int]:
    """Runs the config on a pod, and returns its seconds and the memory of a host."""
    from t5x_harness.runs.pool import run_specs
    from t5x_harness.spec import Hosts, Imports, RunSpec

    spec = RunSpec((CONFIG,), search_paths=(CONFIGS,), slice=SLICES[hosts], cwd=str(ROOT))
    spec = spec.with_settings(hosts=Hosts.EMULATED if hosts > 1 else Hosts.ONE)
    waited: list[Imports] = []
    with tempfile.TemporaryDirectory() as folder:
        watch = Watch()
        (result,) = run_specs([spec], Path(folder), on_imports=waited.append)
        most = watch.end()
    assert result.passed, [finding.message for stage in result.stages for finding in stage.findings]
    return result.seconds - sum(each.seconds for each in waited), most


def table(found: dict[int, list[tuple[float, int]]]) -> str:
    """Returns the medians as a Markdown table."""
    lines = ["| hosts | seconds | times one process | memory of a host |", "|---|---|---|---|"]
    one = statistics.median(seconds for seconds, _ in found[1])
    for hosts, rounds in found.items():
        seconds = statistics.median(each for each, _ in rounds)
        most = max(each for _, each in rounds)
        name = "one process" if hosts == 1 else str(hosts)
        lines.append(f"| {name} | {seconds:.1f} | {seconds / one:.1f} | {most / 2**20:.0f} MiB |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    found: dict[int, list[tuple[float, int]]] = {hosts: [] for hosts in SLICES}
    for number in range(arguments.rounds + 1):  # the first one compiles
        for hosts in SLICES:
            measured = measure(hosts)
            print(number, hosts, *measured, flush=True)
            if number:
                found[hosts].append(measured)
    print(table(found))


if __name__ == "__main__":
    main()
