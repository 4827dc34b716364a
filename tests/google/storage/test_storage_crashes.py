"""A store that is killed at any moment has lost nothing it acknowledged, and shows nothing by halves."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from t5x_harness.google.storage.errors import NoSuchResource
from t5x_harness.google.storage.store import ObjectStore

NAMES = ["a", "a/b", "c/d", "c/", "c", "//", "e" * 300]

# Writes, overwrites, deletes and uploads for ever; says what it is about to do, and when it is done.
WRITER = """
import itertools, sys
from pathlib import Path
from t5x_harness.google.storage.errors import NoSuchResource
from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.google.storage.values import ObjectFields

names = sys.argv[3:]
store = ObjectStore(Path(sys.argv[1]))
say = lambda *words: print(*words, flush=True)
for index in itertools.count(int(sys.argv[2])):
    which = index % len(names)
    name = names[which]
    body = b"" if name == "c/" else str(index).encode() * (index * 7919 % 20000)
    fields = ObjectFields(metadata={"index": str(index)})
    if index % 5 == 3:
        say("delete", index, which)
        try:
            store.delete("data", name)
        except NoSuchResource:
            pass
    elif index % 5 == 4:
        say("write", index, which)
        upload = store.uploads.start("data", name, fields)
        store.uploads.append(upload.id, 0, body[: len(body) // 2])
        store.uploads.append(upload.id, len(body) // 2, body[len(body) // 2 :])
        store.uploads.finish(upload.id)
    else:
        say("write", index, which)
        store.write("data", name, body, fields)
    say("done", index, which)
"""


def write_until_killed(root: Path, start: int, chance: random.Random) -> list[tuple[str, int, str]]:
    """What a writer said before it was killed, name by name."""
    command = [sys.executable, "-c", WRITER, str(root), str(start), *NAMES]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    said = [writer.stdout.readline() for _ in range(chance.randrange(30, 300))]
    time.sleep(chance.random() * 0.003)
    writer.send_signal(signal.SIGKILL)
    said += writer.stdout.readlines()
    writer.stdout.close()
    assert writer.wait() == -signal.SIGKILL, said
    words = [line.split() for line in said if line.endswith("\n")]
    return [(verb, int(index), NAMES[int(which)]) for verb, index, which in words]


def index_of(store: ObjectStore, name: str) -> int | None:
    """Which write an object is of, by its fields; its bytes have to be of the same."""
    try:
        with store.open_read("data", name) as reader:
            body = reader.read()
    except NoSuchResource:
        return None
    assert reader.object.fields.metadata is not None, name
    index = int(reader.object.fields.metadata["index"] or "")
    assert body == (b"" if name == "c/" else str(index).encode() * (index * 7919 % 20000))
    return index


def test_killed_while_writing(root: Path) -> None:
    with ObjectStore(root) as store:
        store.create_bucket("data")
    chance = random.Random(4)
    live: dict[str, int | None] = dict.fromkeys(NAMES)
    following = 0
    for _ in range(5):
        said = write_until_killed(root, following, chance)
        allowed = {name: {index} for name, index in live.items()}
        for verb, index, name in said:
            if verb == "done":
                allowed[name] = {pending}  # noqa: F821 (said right before)
            else:
                pending = index if verb == "write" else None
                allowed[name] = allowed[name] | {pending}
        with ObjectStore(root) as store:
            live = {name: index_of(store, name) for name in NAMES}
            assert {found.name for found in store.list("data").objects} == {n for n in NAMES if live[n] is not None}
        assert all(live[name] in allowed[name] for name in NAMES), (live, allowed, said[-3:])
        following = said[-1][1] + 1


def test_killed_before_every_step_to_the_disk(tmp_path: Path) -> None:
    script = Path(__file__).with_name("crash_everywhere.py")
    done = subprocess.run([sys.executable, script, tmp_path], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100  # steps to the disk; far fewer would mean that they are not seen any more
