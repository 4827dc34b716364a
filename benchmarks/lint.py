"""Measures the processor time of `t5x-harness lint`, of collecting Gin files, and of loading the plugin.

    python benchmarks/lint.py [--rounds 5] [--write docs/performance.md]

Each round measures one figure after another, so that a machine whose speed drifts slows all of them alike. Figures are
the seconds that the processor spends in user and system mode on the whole call, including the start of Python:

calibration     a fixed loop of Python; seconds of two machines compare as multiples of it
python          starting Python and importing nothing, `python -c pass`
start           `t5x-harness lint` on a config that cannot be found
one             `t5x-harness lint` on one config
folder          `t5x-harness lint` on a folder of 300 configs, each a separate file that includes T5X's and a model's
bindings        `t5x-harness lint` on one config with 20,000 bindings more
pytest          `pytest --collect-only -q` in an empty folder, without the plugin
plugin          what the plugin adds to that
collect         `pytest --collect-only -q -m smoke` on the folder of 300 configs

Figures are medians over the rounds; ratios are made inside each round first.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from reporting import report, script

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = ROOT / "sample_tasks" / "configs"
FIRST = "finetune_translate.gin"
COUNT = 300
BINDINGS = 20_000
LOOP = "n = 0\nfor i in range(5_000_000):\n    n += i & 7\n"

# Python keeps what it compiles, as it does for users, and pytest loads no plugin but this one.
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"} | {
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"
}


def call(command: Sequence[str], folder: Path, *, status: int = 0) -> float:
    """Returns the processor seconds of a command, which must end with ``status``."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != status:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def write_configs(folder: Path) -> None:
    """Writes configs that differ in one line, each a whole file, so that no text is read twice."""
    text = (CONFIGS / FIRST).read_text(encoding="utf-8")
    for number in range(COUNT):
        changed = text.replace("seed = 42", f"seed = {number}")
        (folder / f"config_{number:03d}.gin").write_text(changed, encoding="utf-8")


def write_long_config(file: Path) -> None:
    """Writes a config whose other bindings are of a function beside it, each in a scope that a reference opens."""
    file.with_name("m.py").write_text("def part(size=1):\n    ...\n\n\ndef whole(parts=()):\n    ...\n")
    text = (CONFIGS / FIRST).read_text(encoding="utf-8")
    used = ", ".join(f"@p{number}/m.part()" for number in range(BINDINGS))
    lines = [f"p{number}/m.part.size = {number}" for number in range(BINDINGS)]
    text = f"{text}\nimport m\nm.whole.parts = [{used}]\n"
    file.write_text("\n".join([text, *lines, ""]), encoding="utf-8")


def measure() -> dict[str, float]:
    """Makes one round."""
    python = [sys.executable, "-c"]
    lint = [script("t5x-harness"), "lint", f"--gin_search_paths={CONFIGS}"]
    bare = [script("pytest"), "-p", "no:cacheprovider", "--collect-only", "-q"]
    collect = [*bare, "-p", "t5x_harness.plugin"]
    with tempfile.TemporaryDirectory() as name:
        folder, empty = Path(name, "configs"), Path(name, "empty")
        folder.mkdir()
        empty.mkdir()
        write_configs(folder)
        write_long_config(Path(name, "long.gin"))
        call([*lint, "config_000.gin"], folder)
        call(collect, empty, status=5)
        figures = {
            "calibration": call([*python, LOOP], empty),
            "python": call([*python, "pass"], empty),
            "start": call([*lint, "absent.gin"], empty, status=2),
            "one": call([*lint, "config_000.gin"], folder),
            "folder": call([*lint, "configs"], Path(name)),
            "bindings": call([*lint, "long.gin"], Path(name)),
            "pytest": call(bare, empty, status=5),
            "plugin": call(collect, empty, status=5),
            "collect": call([*collect, f"--gin_search_paths={CONFIGS}", "-m", "smoke", "."], folder),
        }
    figures["plugin"] -= figures["pytest"]
    loop = figures["calibration"]
    return figures | {f"{key} / calibration": each / loop for key, each in figures.items() if key != "calibration"}


if __name__ == "__main__":
    report("lint", measure, rounds=5, description=__doc__)
