"""A user's folder with tasks, and processes that cache them, which are forks of one that has imported SeqIO."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from cache_tasks import TASKS

from t5x_harness.google.pool import GooglePool
from t5x_harness.variables import ROOT_VARIABLE
from t5x_harness.workers.run import RunProcess
from t5x_harness.workers.zygote import Zygote


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder: a module with tasks, and the tasks' data in three files."""
    (tmp_path / "mine.py").write_text(TASKS)
    for number in range(3):
        lines = [f"the line {number} {line} says {line * 7 % 13}\n" for line in range(20 + number)]
        (tmp_path / f"lines-{number}.txt").write_text("".join(lines))
    return tmp_path


Start = Callable[..., RunProcess]


@pytest.fixture
def start(zygote: Zygote, folder: Path) -> Start:
    """Forks a process that works in the user's folder."""
    path = (str(Path(__file__).parent), str(folder))

    def begin(env: Mapping[str, str] | None = None) -> RunProcess:
        return zygote.start(
            "cache_process:CacheProcess",
            {},
            log=folder / "log",
            cwd=folder,
            env={"CUDA_VISIBLE_DEVICES": "", **(env or {})},
            python_path=path,
        )

    return begin


@pytest.fixture
def cache(start: Start) -> Callable[..., tuple[int, str, str]]:
    """Runs the command in a separate process, with ``tasks`` of the user's module or other arguments."""

    def run(
        tasks: str = "", *arguments: str, module: str = "mine", env: Mapping[str, str] | None = None
    ) -> tuple[int, str, str]:
        own = [f"--module_import={module}", "--output_cache_dir=cache", "--min_shards=5"]
        with start(env) as process:
            found: list[Any] = process.call(
                "cache", arguments=[*own, *([f"--tasks={tasks}"] if tasks else []), *arguments], timeout=120
            )
        return found[0], found[1], found[2]

    return run


@pytest.fixture
def google() -> Iterator[Mapping[str, str]]:
    """The variables that redirect clients to an emulated Google Cloud with a bucket."""
    if not GooglePool.is_installed():
        pytest.skip("the extra google is not installed")
    made = GooglePool()
    environment = made.enter()
    (Path(environment[ROOT_VARIABLE]) / "buckets/my-bucket").mkdir(parents=True, exist_ok=True)
    yield environment
    made.close()
