"""Counts what runs of sample configs do, in numbers that do not depend on the machine's speed.

    python benchmarks/counts.py [--check | --write] [CONFIG.gin ...]

Each config is run with an empty compile cache and again with the filled one. For each stage there are the traces,
lowerings, compilations and loaded modules; for each run, the checkpoints.

--write keeps the numbers in tests/reference/counts.json; --check compares with it: a number that has risen by more
than 3 % is named, and the exit status is 1. Numbers of other versions of the libraries are not compared.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reporting import script

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = ROOT / "sample_tasks" / "configs"
KEPT = ROOT / "tests" / "reference" / "counts.json"
DEFAULT = ("pretrain_span_corruption.gin",)
LIBRARIES = ("flax", "jax", "jaxlib", "orbax-checkpoint", "seqio", "tensorflow", "tensorflow-datasets")
MOST = 1.03
"""How much of a number may be there, as a multiple of the number that was kept."""


def versions() -> dict[str, str]:
    """Returns the versions on which the numbers depend."""
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in LIBRARIES}}


def counted(configs: Sequence[str]) -> dict[str, int]:
    """Runs configs, and returns their numbers by name."""
    numbers = {}
    for config in configs:
        with tempfile.TemporaryDirectory() as cache:
            for state in ("empty cache", "filled cache"):
                for name, number in _numbers(_report(CONFIGS / config, Path(cache))):
                    numbers[f"{Path(config).stem}, {state}, {name}"] = number
    return numbers


def risen(kept: Mapping[str, int], found: Mapping[str, int]) -> list[str]:
    """Returns a line for each number that is more than 3 % above the kept one, or that was not there."""
    lines = []
    for name, number in found.items():
        before = kept.get(name)
        if before is None:
            lines.append(f"{name}: {number:,}, and was not counted")
        elif number > before * MOST:
            lines.append(f"{name}: {number:,}, and was {before:,}")
    return lines


def _report(config: Path, cache: Path) -> Any:
    command = [script("t5x-harness"), "run", str(config), "--timings", "--no-keep"]
    command += ["--format=json", "-q"]
    env = {**os.environ, "T5X_HARNESS_CACHE_DIR": str(cache), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return json.loads(done.stdout)


def _numbers(report: Any) -> Iterator[tuple[str, int]]:
    [run] = report["runs"]
    for stage in run["stages"]:
        for name, number in stage.get("counts", {}).items():
            if name != "cache hits":  # the more the better
                yield f"{stage['stage']}, {name}", number
    yield "checkpoints", len(run["checkpoints"])  # their bytes differ from run to run by a tenth


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="*", default=DEFAULT)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    kept = json.loads(KEPT.read_text()) if arguments.check else {"versions": versions()}
    others = [
        f"{name} {kept['versions'].get(name)}" for name, v in versions().items() if kept["versions"].get(name) != v
    ]
    if others:
        print(f"not compared: the kept numbers are those of {', '.join(others)}; --write keeps new ones")
        return 0
    found = counted(arguments.configs)
    for name, number in found.items():
        print(f"{name}: {number:,}")
    if arguments.write:
        KEPT.write_text(json.dumps({"versions": versions(), "counts": found}, indent=2) + "\n")
    lines = risen(kept["counts"], found) if arguments.check else []
    for line in lines:
        print(f"risen by more than 3 %: {line}", file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
