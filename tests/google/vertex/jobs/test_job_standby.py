"""Interpreters that stand by for T5X jobs: a job in one is the same as in a new one, and no other job takes one."""

import dataclasses
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from job_service import processes_of, until

from t5x_harness.google.vertex.jobs import python_environment
from t5x_harness.google.vertex.jobs.guarded import Guarded, Task
from t5x_harness.google.vertex.jobs.launching import job_folder
from t5x_harness.google.vertex.jobs.standby import Standby, Standbys
from t5x_harness.google.vertex.settings import ExpectedJobs
from t5x_harness.vertex import job_programs
from t5x_harness.vertex.cloud import PROGRAMS

Tasks = Callable[..., Task]
Seen = Callable[[Guarded], Any]

MAIN = """
import json, os, signal, sys, tempfile, time
import __main__

SEEN = {
    "argv": sys.argv,
    "orig_argv": sys.orig_argv[1:],
    "path": sys.path,
    "python": [sys.executable, sys.prefix, sys.exec_prefix],
    "folder": os.getcwd(),
    "environment": dict(os.environ),
    "group": os.getpgrp() == os.getpid() == os.getsid(0),
    "main": [__name__, __file__, __spec__.name, __package__, __main__.SEEN is SEEN if "SEEN" in dir() else True],
    "names": sorted(name for name in dir() if not name.startswith("__")),
    "temporary": tempfile.gettempdir(),
    "input": os.readlink("/proc/self/fd/0"),
    "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1],
    "signals": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)],
}
if sys.argv[1:2] == ["wait"]:
    print("waits", flush=True)
    time.sleep(1000)
home = sorted(set(os.listdir(os.environ["HOME"])) - {".local", ".python"})
print(json.dumps({**SEEN, "ahead": "jax" in sys.modules, "home": home}))
print("said", file=sys.stderr)
sys.exit(3)
"""


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Returns an import folder with a T5X that reports on its process, and libraries that are fast to import."""
    folder = tmp_path / "image"
    for name in job_programs.PROGRAMS.libraries:
        package = folder
        for part in name.split("."):
            package /= part
            package.mkdir(parents=True, exist_ok=True)
            (package / "__init__.py").touch()
    (folder / "t5x").mkdir()
    (folder / "t5x" / "__init__.py").touch()
    (folder / "t5x" / "main.py").write_text(MAIN)
    (folder / "gin" / "__init__.py").write_text(
        "import os, tempfile\n"
        "os.environ['SET_BY_GIN'] = '1'\n"
        "open(os.path.join(os.environ['HOME'], 'settings'), 'w').close()\n"
        "tempfile.gettempdir()\n"
    )
    return folder


@pytest.fixture
def task(tmp_path: Path, image: Path) -> Tasks:
    """Returns a function that makes T5X tasks with their own folders."""
    made: list[Task] = []

    def make(*arguments: str, words: tuple[str, ...] = ("python", "-m", "t5x.main"), **variables: str) -> Task:
        folder = tmp_path / f"job-{len(made)}"
        own = tuple(folder / name for name in ("home", "tmp", "work"))
        environment = {
            **python_environment.variables(folder / "home", os.environ["PATH"]),
            "PYTHONPATH": str(image),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "tmp"),
            "CLOUD_ML_JOB_ID": str(len(made)),
        }
        made.append(Task((*words, *arguments), environment | variables, folder / "work", folder / "home", own))
        return made[-1]

    return make


@pytest.fixture
def stand_by(task: Tasks, tmp_path: Path) -> Iterator[Callable[..., Standbys]]:
    """Yields ``stand_by(count)``, which announces that number of jobs and starts the interpreter for the first one."""
    made: list[Standbys] = []

    def announce(count: int = 1) -> Standbys:
        made.append(Standbys(lambda _: task(), count, PROGRAMS))
        made[-1].begin()
        return made[-1]

    yield announce
    for each in made:
        each.close()
    assert not processes_of(tmp_path)


@pytest.fixture
def standbys(stand_by: Callable[..., Standbys]) -> Standbys:
    """Returns the standby interpreters for two announced jobs."""
    return stand_by(2)


@pytest.fixture
def seen_by() -> Iterator[Seen]:
    """Yields a function that waits for the T5X of these tests and returns its report on its process."""
    seen: list[Guarded] = []

    def wait(guarded: Guarded) -> Any:
        seen.append(guarded)
        assert (guarded.status(), os.read(guarded.errors, 1 << 20)) == (3, b"said\n")
        return json.loads(os.read(guarded.output, 1 << 20))

    yield wait
    for guarded in seen:
        guarded.close()


def test_a_job_is_what_it_would_be_in_a_new_interpreter(standbys: Standbys, task: Tasks, seen_by: Seen) -> None:
    job = task("--run_mode=train", "--gin.A=$(B) 'c'", TF_CONFIG="{}")
    taken = seen_by(standbys.start(job))
    assert taken.pop("ahead")
    assert taken.pop("home") == ["settings"]  # written by imports
    assert taken["environment"].pop("SET_BY_GIN") == "1"
    fresh = seen_by(Guarded(job))
    assert (fresh.pop("ahead"), fresh.pop("home")) == (False, [])
    assert taken == fresh
    assert all(path.startswith(job.environment["HOME"]) for path in taken["python"])
    assert taken["argv"][1:] == ["--run_mode=train", "--gin.A=$(B) 'c'"]
    # Python itself sets a locale if the environment names none.
    of_locale = {name: value for name, value in taken["environment"].items() if name == "LC_CTYPE"}
    assert taken["environment"] == {**job.environment, **of_locale}


def test_home_stays_where_it_is_while_libraries_are_imported(
    image: Path, stand_by: Callable[..., Standbys], task: Tasks, seen_by: Seen, tmp_path: Path
) -> None:
    taken = tmp_path / "taken"
    with (image / "gin" / "__init__.py").open("a") as library:
        library.write(
            "import time\n"
            f"while not os.path.exists({str(taken)!r}):\n"
            "    time.sleep(0.01)\n"
            "os.environ['HOME_WAS_MOVED'] = str(os.path.islink(os.environ['HOME']))\n"
        )
    guarded = stand_by().start(task())
    taken.touch()
    seen = seen_by(guarded)
    assert (seen["ahead"], seen["environment"]["HOME_WAS_MOVED"]) == (True, "False")


@pytest.mark.parametrize("variables", [{"XLA_FLAGS": "--xla_other"}, {"PYTHONUNBUFFERED": "1"}, {"HOME": "/"}, {}])
def test_what_would_have_imported_something_else_starts_anew(
    standbys: Standbys, task: Tasks, seen_by: Seen, variables: dict[str, str]
) -> None:
    words = ("python", *(() if variables else ("-Werror",)), "-m", "t5x.main")
    assert not seen_by(standbys.start(task(words=words, **variables)))["ahead"]
    assert seen_by(standbys.start(task()))["ahead"]  # it is still standing by


def test_another_attempt_finds_nothing_of_what_the_one_before_left(
    standbys: Standbys, task: Tasks, seen_by: Seen
) -> None:
    job = task()
    for folder in job.own:
        folder.mkdir(parents=True)
        (folder / "left").touch()
    seen = seen_by(standbys.start(job))
    assert (seen["ahead"], seen["home"]) == (True, ["settings"])  # written by imports
    assert not [*job.folder.iterdir(), *Path(job.environment["TMPDIR"]).iterdir()]


def test_one_that_has_ended_is_not_taken(
    stand_by: Callable[..., Standbys], task: Tasks, seen_by: Seen, tmp_path: Path
) -> None:
    made = stand_by()
    [pid] = until(lambda: processes_of(tmp_path), bool)
    os.kill(pid, signal.SIGKILL)
    until(lambda: processes_of(tmp_path), lambda left: not left)
    select.select([made._waiting._guarded.link], [], [])  # type: ignore[union-attr]
    assert not seen_by(made.start(task()))["ahead"]


def test_where_a_library_cannot_be_imported_the_job_starts_as_without(
    stand_by: Callable[..., Standbys], image: Path, task: Tasks, seen_by: Seen
) -> None:
    seen_by(stand_by().start(task()))
    (image / "seqio" / "__init__.py").write_text("raise RuntimeError('broken')")
    assert not seen_by(stand_by().start(task()))["ahead"]


def test_a_job_in_it_ends_when_it_is_told_to(standbys: Standbys, task: Tasks) -> None:
    guarded = standbys.start(task("wait"))
    assert os.read(guarded.output, 100) == b"waits\n"
    guarded.stop(1000)
    assert guarded.status() == 128 + signal.SIGTERM
    guarded.close()


def test_a_job_takes_the_one_that_its_server_was_told_to_expect(
    image: Path, make_service: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (image / "t5x" / "partitioning.py").touch()  # by which the harness recognizes T5X
    monkeypatch.setenv("PYTHONPATH", str(image))
    uri, machine = "gcr.io/p/t5x:1", "n1-standard-4"
    service = make_service(expected=ExpectedJobs(uri, {"machineType": machine}, 2))
    spec = {"replica_count": 1, "machine_spec": {"machine_type": machine}, "container_spec": {"image_uri": uri}}
    seen = []
    for _ in range(3):
        job = service.ended(service.create({"worker_pool_specs": [spec]}))
        folder = job_folder(service.api.services.settings, job.name)
        [told] = [line for line in (folder / "workerpool0-0.log").read_text().splitlines() if line != "said"]
        seen.append(json.loads(told))
        assert all(Path(path).is_relative_to(folder) for path in seen[-1]["python"])
        assert Path(seen[-1]["python"][0]).exists()
    assert [each["ahead"] for each in seen] == [True, True, False]


def test_only_t5x_is_stood_by_for(task: Tasks) -> None:
    with pytest.raises(ValueError, match=r"python -m trainer\.task is not python -m t5x\.main"):
        Standby(task(words=("python", "-m", "trainer.task")), PROGRAMS)


def test_nothing_is_left_when_its_server_is_killed(task: Tasks, tmp_path: Path) -> None:
    """This applies both to a waiting interpreter and to a job in one."""
    # Each interpreter has its own folders, like those that the server makes, because its HOME moves to its job.
    tasks = [dataclasses.asdict(each) for each in (task(), task(), task("wait"))]
    program = (
        "import json, os, sys, time\n"
        "from pathlib import Path\n"
        "from t5x_harness.google.vertex.jobs.standby import Standbys, Task\n"
        "def read(t):\n"
        "    own = tuple(map(Path, t['own']))\n"
        "    return Task(tuple(t['words']), t['environment'], Path(t['folder']), Path(t['home']), own)\n"
        "*waiting, job = map(read, json.load(sys.stdin))\n"
        f"standbys = Standbys(lambda number: waiting[number - 1], 2, {PROGRAMS!r})\n"
        "standbys.begin()\n"
        "guarded = standbys.start(job)\n"
        "assert os.read(guarded.output, 100)\n"
        "print('runs', flush=True)\n"
        "time.sleep(1000)\n"
    )
    server = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/"
    )
    assert server.stdin
    assert server.stdout
    with server:
        try:
            server.stdin.write(json.dumps(tasks, default=str))
            server.stdin.close()
            assert server.stdout.readline() == "runs\n"
            assert len(until(lambda: processes_of(tmp_path), lambda found: len(found) == 2)) == 2
        finally:
            server.kill()
    until(lambda: processes_of(tmp_path), lambda left: not left)
