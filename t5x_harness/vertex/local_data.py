"""Files of this machine that a run reads and its job would not have: vocabularies and examples that modules name.

The closure has the files that the config itself names. The files that the module of a task names are known once the
module has been imported and the task's objects have been built; the tables of the stage resolve have them.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

from t5x_harness.spec import RunResult, Stage
from t5x_harness.vertex.closure import Closure, not_of_a_job

# Tables of the stage resolve, with the column for the file and the column for its users.
_TABLES = {"vocabulary": ("file", "of"), "sources": ("read from", "task")}
_WHAT = {"vocabulary": "the vocabulary of", "sources": "the examples of"}
_MODEL = "model"


def unstaged_files(closure: Closure, result: RunResult) -> tuple[str, ...]:
    """Returns the files of this machine that the run's tasks and model read, with what to do about each.

    Files that are staged with their package, and files of T5X and other installed packages are left out, because the
    job has them with its modules.

    Args:
      closure: the files that the job gets.
      result: the result of the checked run; without the stage resolve nothing is known.
    """
    cwd = Path(os.path.abspath(result.spec.cwd))
    image = _places_of_image(closure)
    found: dict[str, None] = {}
    for what, path, users in _named(result):
        matching = [Path(each) for each in glob.glob(os.path.join(cwd, path)) if os.path.isfile(each)]
        if not matching or any(note.startswith(f"{path},") for note in closure.passed_over):
            continue
        if os.path.isabs(path) and all(_has(closure, file, image) for file in matching):
            continue
        found.setdefault(not_of_a_job(path, f"{_WHAT[what]} {users}"))
    return tuple(found)


def _named(result: RunResult) -> Iterator[tuple[str, str, str]]:
    """Yields each local path that the tables of resolve name: the table, the path, and its users."""
    stage = next((each for each in result.stages if each.stage is Stage.RESOLVE), None)
    for table in stage.tables if stage else ():
        if table.name not in _TABLES:
            continue
        file, user = (table.columns.index(column) for column in _TABLES[table.name])
        for row in table.rows:
            named = str(row[file]) if len(row) > file else ""
            users = ", ".join("the " + each if each == _MODEL else each for each in str(row[user]).split(", "))
            for path in named.split(", "):
                if "://" not in path and not path.startswith(("/gcs/", "t5x/")):
                    yield table.name, path, users


def _places_of_image(closure: Closure) -> Sequence[Path]:
    """Returns the folders whose files are expected in the image: installed packages, T5X, and this package."""
    installed = [sysconfig.get_paths()[name] for name in ("purelib", "platlib")]
    samples = importlib.util.find_spec("t5x_harness.sample_tasks")
    harness = [Path(__file__).parents[1], *((samples and samples.submodule_search_locations) or ())]
    t5x = [os.path.join(closure.program.t5x_parent, "t5x")] if closure.program.t5x_parent else []
    return [Path(each).resolve() for each in (*installed, *harness, *t5x)]


def _has(closure: Closure, file: Path, image: Sequence[Path]) -> bool:
    """Returns whether the job has a file in its stage or in the image, next to the module that names it."""
    real = file.resolve()
    if any(real.is_relative_to(place) for place in image):
        return True
    ends = (each for each in closure.modules if real.as_posix().endswith(f"/{each.name.removeprefix('python/')}"))
    return any(each.content == real.read_bytes() for each in ends)
