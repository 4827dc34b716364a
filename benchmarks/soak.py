"""Brings random faults to runs for a long time, and lets clients use `serve` for a day, and looks for what is left.

    python benchmarks/soak.py [--faults 500] [--each 5] [--at-once 1] [--minutes 60] [--hours 24] [--only runs]
                              [--write docs/reliability.md]

runs   tiny trainings, evaluations and inferences in one session: one process that has imported the stack, and one
       emulated Google Cloud. Each run is a campaign: it is ended by several faults that the seed draws, restarted after
       each, and compared. After each run, what is left of it is counted: processes, open ports, descriptors, entries
       of the temporary folder, and memory of the session's processes. --minutes, Ctrl-C or SIGTERM ends it early; the
       table counts what was done.
serve  three clients, each at one request a second for so many hours, compressed: each sends its requests as fast as
       they are answered. They put, get, list and delete objects, and compare what they get.
"""

import argparse
import contextlib
import dataclasses
import http.client
import json
import multiprocessing
import os
import random
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import faults
from memory import private_bytes
from reporting import script, write_table

MARK = "T5X_HARNESS_SOAK"
"""A variable that every process of a soak has, however it came to be."""

WARM_UP = 3
"""The first runs, after which the session's own processes have what they keep."""

KINDS = {"train": 1, "eval": 1, "infer": 3}
"""How often each kind of run is drawn: an inference takes a third of a training's time."""

EVAL = "utils.DatasetConfig.split = 'validation'\nutils.DatasetConfig.batch_size = 8\n"
TEXTS = {
    "train": ("pretrain", faults.TRAIN.replace("TRAIN_STEPS = 6", "TRAIN_STEPS = 4"), "MODEL_DIR"),
    "eval": ("eval", EVAL + "CHECKPOINT_PATH = 'gs://nowhere/model/checkpoint_1234'\n", "EVAL_OUTPUT_DIR"),
    "infer": ("infer", faults.INFER, "INFER_OUTPUT_DIR"),
}
CLIENTS, RATE = 3, 1.0


@dataclasses.dataclass(frozen=True)
class Left:
    """What there is of a session beside its runs.

    Attributes:
      processes: the processes of the session.
      ports: the ports that they listen on.
      descriptors: the descriptors that they have open.
      entries: the entries of the temporary folder.
      megabytes: the memory that they have alone.
    """

    processes: int
    ports: int
    descriptors: int
    entries: int
    megabytes: float

    @classmethod
    def now(cls, mark: str, folder: Path, *, own: bool = False) -> "Left":
        """Counts what there is of the processes with a mark, and, if wanted, of this one."""
        pids = [int(path.name) for path in Path("/proc").glob("[0-9]*") if _has(path, mark)]
        pids += [os.getpid()] if own else []
        inodes = [inode for pid in pids for inode in _targets(pid)]
        listening = {line.split()[9] for line in _lines("/proc/net/tcp") if line.split()[3] == "0A"}
        ports = len({f"socket:[{inode}]" for inode in listening} & {*inodes})
        memory = sum(map(private_bytes, pids)) / 2**20
        return cls(len(pids), ports, len(inodes), len(list(folder.iterdir())), memory)


def _has(process: Path, mark: str) -> bool:
    with contextlib.suppress(OSError):
        return f"{MARK}={mark}".encode() in (process / "environ").read_bytes().split(b"\0")
    return False


def _targets(pid: int) -> list[str]:
    found = []
    with contextlib.suppress(OSError):
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.append(os.readlink(path))
    return found


def _lines(file: str) -> list[str]:
    return Path(file).read_text().splitlines()[1:]


@dataclasses.dataclass(frozen=True)
class SoakRun:
    """One run of the soak.

    Attributes:
      kind: ``train``, ``eval`` or ``infer``.
      storage: where it writes.
      campaign: the seed of its faults.
      outcomes: each fault, and what it showed.
      wrong: what is not as expected.
      left: what there was after it.
    """

    kind: str
    storage: str
    campaign: int
    outcomes: Sequence[str]
    wrong: str
    left: Left


def soak(
    number: int, seed: int, kinds: Mapping[str, int] = KINDS, each: int = 5, at_once: int = 1
) -> Iterator[SoakRun]:
    """Makes runs in one session until they had so many faults, and yields each run with what is left after it.

    Args:
      number: the number of faults.
      seed: the seed of kinds, storages and faults.
      kinds: how often each kind of run is drawn.
      each: the faults of each run.
      at_once: how many runs work at the same time; what is left is counted when all of them have ended.
    """
    from t5x_harness.runs.pool import RunContext, RunPool

    chance, mark = random.Random(seed), f"{os.getpid()}-{time.time_ns()}"
    with tempfile.TemporaryDirectory() as home, _marked(mark, folder := Path(home, "tmp")):
        Path(home, "buckets", "faults").mkdir(parents=True)
        pool = RunPool(timeout=300, parallel=at_once)
        try:
            for begin in range(seed, seed + number, each * at_once):
                batch = range(begin, min(begin + each * at_once, seed + number), each)
                drawn = [
                    (campaign, *chance.choices([*kinds], [*kinds.values()]), chance.choice([*faults.STORAGES]))
                    for campaign in batch
                ]
                with contextlib.ExitStack() as made:
                    runs = []
                    for campaign, kind, storage in drawn:
                        spec = _spec(Path(home), kind, faults.STORAGES[storage]).with_settings(
                            full_size=True, campaign=campaign, times=each, gcs_root=f"{home}/buckets"
                        )
                        workspace = made.enter_context(tempfile.TemporaryDirectory(dir=home))
                        runs.append(made.enter_context(pool.run(spec, Path(workspace), RunContext())))
                        pool.begin(runs[-1], runs[-1].stages)
                    results = [_finished(run) for run in runs]
                left = _settled(mark, folder, own=True)
                for (campaign, kind, storage), result in zip(drawn, results, strict=True):
                    facts = [fact for stage in result.stages for fact in stage.facts]
                    outcomes = [text for name, text in facts if name.startswith("fault ")]
                    wrong = "" if result.passed and len(outcomes) == each else _why(result.stages)
                    yield SoakRun(kind, storage, campaign, outcomes, wrong, left)
        finally:
            pool.close(patient=True)
            LEFT_AT_END.append(_settled(mark, folder, own=True))


def _finished(run: Any) -> Any:
    """Returns the result of a run, once it has ended."""
    run.finish()
    return run.result()


def _spec(home: Path, kind: str, storage: str) -> Any:
    """Returns a run of a kind that writes to a storage."""
    from t5x_harness.spec import RunSpec

    script, text, output = TEXTS[kind]
    place = f"{output} = '{storage}/out'\n" if storage else ""
    name = f"{kind}-{storage.partition(':')[0].strip('/').partition('/')[0] or 'local'}"
    model = faults.MODEL.format(mode=kind, run=script, task="sample_classify")
    (home / f"{name}.gin").write_text(model + text + place, encoding="utf-8")
    search = (str(faults.ROOT / "sample_tasks/configs"),)
    return RunSpec((f"{name}.gin",), search_paths=search, slice="v3:1x1", cwd=str(home))


@contextlib.contextmanager
def _marked(mark: str, folder: Path) -> Iterator[None]:
    """Gives each process that is started a mark, and a temporary folder of its own."""
    folder.mkdir()
    changed = {MARK: mark, "TMPDIR": str(folder)}
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    tempfile.tempdir = None  # it is looked up again
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
        tempfile.tempdir = None


LEFT_AT_END: list[Left] = []
"""What is left after each session."""


def _settled(mark: str, folder: Path, *, own: bool = False) -> Left:
    """Counts what is left, after the ends of processes that are ending."""
    found = Left.now(mark, folder, own=own)
    for _ in range(20):
        time.sleep(0.1)
        if (again := Left.now(mark, folder, own=own)).processes == found.processes:
            return again
        found = again
    return found


def _why(stages: Sequence[Any]) -> str:
    return "; ".join(f"{s.stage}: {f.code} {f.message}" for s in stages for f in s.errors) or "the stage did not run"


def table_of_runs(made: Sequence[SoakRun]) -> str:
    """Returns a Markdown table of what runs left: after the first ones, at the most, and after the last one."""
    at = min(WARM_UP, len(made))
    kinds = ", ".join(f"{sum(run.kind == kind for run in made)} of mode {kind}" for kind in KINDS)
    shown = sum(len(run.outcomes) for run in made)
    lines = [f"| {shown} faults in {len(made)} runs ({kinds}) | after run {at} | most | after the last | at the end |"]
    lines.append("|---|---|---|---|---|")
    for field in dataclasses.fields(Left):
        values = [getattr(run.left, field.name) for run in made]
        row = [values[at - 1], max(values), values[-1], getattr(LEFT_AT_END[-1], field.name)]
        lines.append(f"| {field.name} | {' | '.join(f'{value:,.0f}' for value in row)} |")
    lines.append(f"| runs with an outcome that was not expected | | | {sum(bool(run.wrong) for run in made)} | |")
    return "\n".join(lines)


def client(number: int, port: int, requests: int, seed: int, done: Any) -> None:
    """Uses Cloud Storage, and puts the number of requests and of wrong answers into a queue."""
    chance, connection = random.Random(f"{seed} {number}"), http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    kept: dict[str, bytes] = {}
    wrong = 0

    def ask(method: str, path: str, body: bytes | None = None) -> bytes:
        connection.request(method, path, body, {"Content-Type": "application/octet-stream"})
        answer = connection.getresponse()
        text = answer.read()
        return text if answer.status in (200, 204) else f"{answer.status}".encode()

    objects = "/storage/v1/b/soak/o"
    for _ in range(requests):
        name = f"{number}/{chance.randrange(200)}"
        action = chance.choices(("put", "get", "list", "delete"), (40, 50, 1, 5))[0]
        if action == "put":
            kept[name] = chance.randbytes(chance.choice((10, 1000, 50_000)))
            found = json.loads(ask("POST", f"/upload{objects}?uploadType=media&name={quote(name, '')}", kept[name]))
            wrong += not isinstance(found, dict) or found["size"] != str(len(kept[name]))
        elif action == "get":
            wrong += ask("GET", f"{objects}/{quote(name, '')}?alt=media") != kept.get(name, b"404")
        elif action == "list":
            listed = json.loads(ask("GET", f"{objects}?prefix={number}/&maxResults=1000"))
            wrong += {each["name"] for each in listed.get("items", [])} != set(kept)
        else:
            wrong += ask("DELETE", f"{objects}/{quote(name, '')}") != (b"404" if kept.pop(name, None) is None else b"")
    done.put((requests, wrong))


def served(hours: float, seed: int) -> dict[str, str]:
    """Lets three clients use ``serve`` and returns figures."""
    requests = int(hours * 3600 * RATE)
    with tempfile.TemporaryDirectory() as name:
        root, variables = Path(name, "root"), Path(name, "google.env")
        mark = f"serve-{os.getpid()}"
        command = [script("t5x-harness"), "serve", f"--root={root}", f"--env-file={variables}"]
        (tmp := Path(name, "tmp")).mkdir()
        environment = {**os.environ, MARK: mark, "TMPDIR": str(tmp)}
        server = subprocess.Popen([*command, "--create-buckets"], env=environment, stderr=subprocess.DEVNULL)
        while not variables.exists():
            time.sleep(0.05)
        port = int(re.findall(r"STORAGE_EMULATOR_HOST=\S*?:(\d+)", variables.read_text())[0])
        before = {}
        began = time.monotonic()
        answers = wrong = 0
        for part, share in enumerate((0.02, 0.98)):  # the first part warms up
            queue = multiprocessing.Queue()
            arguments = [(n + CLIENTS * part, port, int(requests * share), seed, queue) for n in range(CLIENTS)]
            clients = [multiprocessing.Process(target=client, args=each) for each in arguments]
            for each in clients:
                each.start()
            for made, false in (queue.get() for _ in clients):
                answers, wrong = answers + made, wrong + false
            for each in clients:
                each.join()
            before[part] = Left.now(mark, tmp)
        seconds = time.monotonic() - began
        server.send_signal(signal.SIGTERM)
        status = server.wait(timeout=30)
        end = _settled(mark, tmp)
    first, last = before[0], before[1]
    return {
        "clients, each at one request a second": f"{CLIENTS}",
        "hours": f"{hours:g}",
        "requests": f"{answers:,}",
        "requests a second, compressed": f"{answers / seconds:,.0f}",
        "wrong answers": f"{wrong}",
        "memory after a fiftieth, and at the end (MB)": f"{first.megabytes:,.0f}, {last.megabytes:,.0f}",
        "descriptors after a fiftieth, and at the end": f"{first.descriptors}, {last.descriptors}",
        "exit status after SIGTERM": f"{status}",
        "processes and ports left": f"{end.processes}, {end.ports}",
        "entries left in the temporary folder": f"{end.entries}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=500)
    parser.add_argument("--each", type=int, default=5, help="the faults of each run")
    parser.add_argument("--at-once", type=int, default=1, help="the runs that work at the same time")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no run begins after them")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--only", choices=("runs", "serve"))
    parser.add_argument("--write", type=Path, help="Markdown file whose tables between the markers are replaced")
    arguments = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background job ignores SIGINT unless it is told not to
        signal.signal(number, signal.default_int_handler)
    tables = {}
    if arguments.only != "serve":
        made: list[SoakRun] = []
        session = soak(arguments.faults, arguments.seed, each=arguments.each, at_once=arguments.at_once)
        until = time.monotonic() + 60 * arguments.minutes
        with contextlib.suppress(KeyboardInterrupt), contextlib.closing(session):
            for run in session:
                made.append(run)
                about = (run.kind, run.storage, run.campaign, *run.outcomes, run.wrong, run.left)
                print(len(made), *about, sep=" | ", flush=True)
                if time.monotonic() > until:
                    break
        tables["soak"] = table_of_runs(made)
    if arguments.only != "runs":
        figures = served(arguments.hours, arguments.seed)
        rows = (f"| {name} | {value} |" for name, value in figures.items())
        tables["serve"] = "\n".join(["| figure | value |", "|---|---|", *rows])
    for name, table in tables.items():
        print(table)
        if arguments.write:
            write_table(arguments.write, name, table)


if __name__ == "__main__":
    main()
