"""For two actors on the same names, one order of their steps explains both their results and the final state."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from interleaving import interleaved

from t5x_harness.google.gcs_mount.filesystem import FileSystem
from t5x_harness.google.storage.errors import NoSuchResource, StoreError
from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.google.storage.values import ObjectFields, Preconditions, SourceObject, StoredObject

FILES = ["a", "b", "c/d"]
NAMES = [*FILES, "c/", "a//b"]


@dataclasses.dataclass(frozen=True)
class Upload:
    name: str
    body: bytes
    mark: str
    finished: bool = False


@dataclasses.dataclass(frozen=True)
class Parts:
    """A multipart upload of ``b``."""

    mark: str
    bodies: dict[int, bytes]


@dataclasses.dataclass
class State:
    """The content of a store: bodies with the mark that a write through the API leaves, uploads, and parts."""

    objects: dict[str, tuple[bytes, str | None]] = dataclasses.field(default_factory=dict)
    uploads: dict[str, Upload] = dataclasses.field(default_factory=dict)
    parts: dict[str, Parts] = dataclasses.field(default_factory=dict)
    bucket: bool = True


Result = str | tuple[Any, ...]
Step = Callable[[State, dict[str, Any]], Result | None]


@dataclasses.dataclass(frozen=True)
class Deed:
    """An action of an actor, and the same on a :class:`State`, in steps that may alternate with those of other actors.

    Attributes:
      name: a description for messages.
      run: a function that carries out the action on the store.
      steps: the steps on the state; the first one that returns a result ends the action.
    """

    name: str
    run: Callable[[], Result | None]
    steps: tuple[Step, ...]


def result_of(call: Callable[[], Result | None]) -> Result:
    try:
        found = call()
    except StoreError as error:
        return error.code
    return "OK" if found is None else found


def in_bucket(step: Step) -> Step:
    """Returns a step that fails if the bucket does not exist."""
    return lambda state, memory: step(state, memory) if state.bucket else "NoSuchBucket"


def or_gone(call: Callable[[], Result | None]) -> Result | None:
    """Makes a call for an upload; returns ``gone`` if the upload no longer exists, which has several reasons."""
    try:
        return call()
    except NoSuchResource:
        return "gone"


def outcomes(state: State, actors: Sequence[Sequence[Deed]]) -> Iterator[tuple[list[list[Result]], State]]:
    """Yields the possible results of the actors, with the final state, for all orders of their steps."""

    def go_on(
        state: State, places: list[tuple[int, int]], memories: list[dict[str, Any]], results: list[list[Result]]
    ) -> Iterator[tuple[list[list[Result]], State]]:
        over = True
        for index, (deed, step) in enumerate(places):
            if deed == len(actors[index]):
                continue
            over = False
            now, memory, done = copy.deepcopy((state, memories, results))
            result = actors[index][deed].steps[step](now, memory[index])
            place = (deed, step + 1)
            if result is not None:
                done[index].append(result)
                memory[index] = {}
                place = (deed + 1, 0)
            yield from go_on(now, [*places[:index], place, *places[index + 1 :]], memory, done)
        if over:
            yield results, state

    yield from go_on(state, [(0, 0)] * len(actors), [{} for _ in actors], [[] for _ in actors])


class TwoActors(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="two-actors-"))
        self.tree = self.folder / "buckets" / "data"
        self.store = ObjectStore(self.folder)
        self.store._core.database._execute("PRAGMA synchronous = OFF")
        self.store.create_bucket("data")
        self.state = State()
        self.count = 0
        self.generations: dict[str, int] = {}

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    close = teardown

    # The actions of actors.

    def new(self) -> tuple[bytes, str]:
        self.count += 1
        return f"body-{self.count}".encode(), str(self.count)

    def marked(self, mark: str) -> ObjectFields:
        return ObjectFields(metadata={"mark": mark})

    def wrote(self, written: StoredObject) -> Result:
        assert written.fields.metadata is not None
        mark = str(written.fields.metadata["mark"])
        # An object that was moved meanwhile has a later generation, no matter which thread gets here first.
        self.generations[mark] = max(written.generation, self.generations.get(mark, 0))
        return "OK"

    def write(self, name: str, only_new: bool) -> Deed:
        body, mark = self.new()
        body = b"" if name == "c/" else body
        condition = Preconditions(generation_match=0) if only_new else Preconditions()

        @in_bucket
        def step(state: State, _: dict[str, Any]) -> Result:
            if only_new and name in state.objects:
                return "PreconditionFailed"
            state.objects[name] = (body, mark)
            return "OK"

        def run() -> Result:
            return self.wrote(self.store.write("data", name, body, self.marked(mark), condition))

        return Deed(f"write {name} as {mark}{', if it is new' * only_new}", run, (step,))

    def delete(self, name: str) -> Deed:
        @in_bucket
        def step(state: State, _: dict[str, Any]) -> Result:
            return "OK" if state.objects.pop(name, None) else "NoSuchKey"

        return Deed(f"delete {name}", lambda: self.store.delete("data", name), (step,))

    def read(self, name: str) -> Deed:
        def run() -> Result:
            with self.store.open_read("data", name) as reader:
                return (name, reader.read(), (reader.object.fields.metadata or {}).get("mark"))

        @in_bucket
        def step(state: State, _: dict[str, Any]) -> Result:
            return (name, *state.objects[name]) if name in state.objects else "NoSuchKey"

        return Deed(f"read {name}", run, (step,))

    def list(self) -> Deed:
        def run() -> Result:
            return tuple((it.name, (it.fields.metadata or {}).get("mark")) for it in self.store.list("data").objects)

        @in_bucket
        def step(state: State, _: dict[str, Any]) -> Result:
            return tuple((name, state.objects[name][1]) for name in sorted(state.objects, key=str.encode))

        return Deed("list", run, (step,))

    def patch(self, name: str) -> Deed:
        _, mark = self.new()

        def run() -> Result:
            return self.wrote(self.store.patch("data", name, self.marked(mark)))

        @in_bucket
        def step(state: State, _: dict[str, Any]) -> Result:
            if name not in state.objects:
                return "NoSuchKey"
            state.objects[name] = (state.objects[name][0], mark)
            return "OK"

        return Deed(f"patch {name} as {mark}", run, (step,))

    def write_on(self, name: str) -> Deed:
        """Writes, on the condition that the name still has the generation from before the actors began."""
        body, mark = self.new()
        before = self.state.objects.get(name)
        generation = self.store.stat("data", name).generation if before else 0

        def run() -> Result:
            on = Preconditions(generation_match=generation)
            return self.wrote(self.store.write("data", name, body, self.marked(mark), on))

        def step(state: State, _: dict[str, Any]) -> Result:
            if state.objects.get(name) != before:
                return "PreconditionFailed"
            state.objects[name] = (body, mark)
            return "OK"

        return Deed(f"write {name} as {mark}, if it is as before", run, (step,))

    def move(self, name: str, to: str) -> Deed:
        def run() -> Result:
            moved = self.store.move(SourceObject("data", name), to)
            return "OK" if moved.fields.metadata is None else self.wrote(moved)

        @in_bucket
        def step(state: State, _: dict[str, Any]) -> Result:
            if name not in state.objects:
                return "NoSuchKey"
            state.objects[to] = state.objects.pop(name)
            return "OK"

        return Deed(f"move {name} to {to}", run, (step,))

    def copy(self, name: str, to: str) -> Deed:
        _, mark = self.new()

        def run() -> Result:
            return self.wrote(self.store.copy(SourceObject("data", name), "data", to, self.marked(mark)))

        @in_bucket
        def look(state: State, memory: dict[str, Any]) -> Result | None:
            if name not in state.objects:
                return "NoSuchKey"
            memory["body"] = state.objects[name][0]
            return None

        @in_bucket
        def put(state: State, memory: dict[str, Any]) -> Result:
            state.objects[to] = (memory["body"], mark)
            return "OK"

        return Deed(f"copy {name} to {to} as {mark}", run, (look, put))

    def replace_outside(self, name: str) -> Deed:
        body, _ = self.new()

        def run() -> Result:
            beside = self.folder / f"outside-{body.decode()}"
            beside.write_bytes(body)
            os.utime(beside, ns=(self.count, self.count))
            while True:
                # An empty folder may be removed as soon as it exists.
                with contextlib.suppress(FileExistsError, FileNotFoundError):
                    os.makedirs(self.tree / os.path.dirname(name), exist_ok=True)
                    os.replace(beside, self.tree / name)
                    return "OK"

        def step(state: State, _: dict[str, Any]) -> Result:
            state.objects[name] = (body, None)
            return "OK"

        return Deed(f"replace {name} outside by {body.decode()}", run, (step,))

    def remove_outside(self, name: str) -> Deed:
        def run() -> Result:
            try:
                os.unlink(self.tree / name)
            except (FileNotFoundError, NotADirectoryError):
                return "nothing there"
            return "OK"

        def step(state: State, _: dict[str, Any]) -> Result:
            return "OK" if state.objects.pop(name, None) else "nothing there"

        return Deed(f"remove {name} outside", run, (step,))

    def close_at_mount(self, name: str) -> Deed:
        """Closes a file with new content that is open at a mount in the mode ``fuse``."""
        body, _ = self.new()
        files, base = FileSystem(self.folder), self.state.objects.get(name)
        bucket = files.look_up(files.nodes[1], b"data")
        if base is None:
            handle = files.create(bucket, name.encode())[1]
        else:
            handle = files.open(files.look_up(bucket, name.encode()), os.O_WRONLY | os.O_TRUNC)
        files.write(handle, memoryview(body), 0)
        files.set_modified(handle.node, self.count)

        def run() -> Result:
            try:
                files.flush(handle.node)
            except OSError as error:
                return errno.errorcode[error.errno or 0]
            finally:
                files.release(handle)
            return "OK"

        def step(state: State, _: dict[str, Any]) -> Result:
            if state.objects.get(name) != base:
                return "ESTALE"
            state.objects[name] = (body, None)
            return "OK"

        return Deed(f"close {name} at the mount as {body.decode()}", run, (step,))

    def at_mount(self, what: str, name: str, to: str = "") -> Deed:
        """Removes or renames a file at a mount in the mode ``fuse``."""
        files = FileSystem(self.folder)
        bucket = files.look_up(files.nodes[1], b"data")

        def run() -> Result:
            try:
                if what == "unlink":
                    files.remove_file(bucket, name.encode())
                else:
                    files.rename(bucket, name.encode(), bucket, to.encode())
            except FileNotFoundError:
                return "nothing there"
            return "OK"

        def step(state: State, _: dict[str, Any]) -> Result:
            if name not in state.objects:
                return "nothing there"
            body, _ = state.objects.pop(name)
            if what == "rename":
                state.objects[to] = (body, None)
            return "OK"

        return Deed(f"{what} {name} {to} at the mount", run, (step,))

    def delete_bucket(self) -> Deed:
        def step(state: State, _: dict[str, Any]) -> Result:
            if not state.bucket or state.objects:
                return "BucketNotEmpty" if state.bucket else "NoSuchBucket"
            state.bucket = False
            state.uploads, state.parts = {}, {}
            return "OK"

        return Deed("delete the bucket", lambda: self.store.delete_bucket("data"), (step,))

    def create_bucket(self) -> Deed:
        def run() -> None:
            self.store.create_bucket("data")

        def step(state: State, _: dict[str, Any]) -> Result:
            if state.bucket:
                return "BucketAlreadyOwnedByYou"
            state.bucket = True
            return "OK"

        return Deed("create the bucket", run, (step,))

    def finish(self, upload: str) -> Deed:
        it = self.state.uploads[upload]

        def run() -> Result:
            return self.wrote(self.store.uploads.finish(upload))

        def step(state: State, _: dict[str, Any]) -> Result:
            if upload not in state.uploads:
                return "gone"
            if not state.uploads[upload].finished:
                state.objects[it.name] = (it.body, it.mark)
                state.uploads[upload] = dataclasses.replace(it, finished=True)
            return "OK"

        return Deed(f"finish the upload {it.mark} of {it.name}", lambda: or_gone(run), (step,))

    def cancel(self, upload: str) -> Deed:
        def run() -> Result | None:
            return or_gone(lambda: self.store.uploads.cancel(upload))

        def step(state: State, _: dict[str, Any]) -> Result:
            return "OK" if state.uploads.pop(upload, None) else "gone"

        return Deed(f"cancel the upload {self.state.uploads[upload].mark}", run, (step,))

    def send_part(self, upload: str) -> Deed:
        body, mark = self.new()

        def run() -> None:
            with self.store.multiparts.open_part(upload, 2) as writer:
                writer.write(body)
                writer.commit()

        def step(state: State, _: dict[str, Any]) -> Result:
            if upload not in state.parts:
                return "gone"
            state.parts[upload].bodies[2] = body
            return "OK"

        return Deed(f"send part 2 of {self.state.parts[upload].mark}: {mark}", lambda: or_gone(run), (step,))

    def complete(self, upload: str) -> Deed:
        it = self.state.parts[upload]

        def run() -> Result:
            etag = hashlib.md5(it.bodies[1], usedforsecurity=False).hexdigest()
            return self.wrote(self.store.multiparts.complete(upload, [(1, etag)]))

        def step(state: State, _: dict[str, Any]) -> Result:
            if state.parts.pop(upload, None) is None:
                return "gone"
            state.objects["b"] = (it.bodies[1], it.mark)
            return "OK"

        return Deed(f"complete {it.mark}", lambda: or_gone(run), (step,))

    def abort(self, upload: str) -> Deed:
        def run() -> Result | None:
            return or_gone(lambda: self.store.multiparts.abort(upload))

        def step(state: State, _: dict[str, Any]) -> Result:
            return "OK" if state.parts.pop(upload, None) else "gone"

        return Deed(f"abort {self.state.parts[upload].mark}", run, (step,))

    # The checks.

    def drawn(self, data: st.DataObject, world: str, name: str) -> Deed:
        names = st.sampled_from([name, name, name, *NAMES])
        kinds: list[Callable[[], Deed]] = [
            lambda: self.write(data.draw(names), data.draw(st.booleans())),
            lambda: self.delete(data.draw(names)),
            lambda: self.read(data.draw(names)),
            self.list,
            lambda: self.patch(data.draw(names)),
            lambda: self.copy(data.draw(names), data.draw(names)),
            lambda: self.move(data.draw(names), data.draw(names.map(lambda it: f"{it}.moved"))),
        ]
        if world == "outside":
            files = st.sampled_from([name, name, name, *FILES] if name in FILES else FILES)
            kinds += [lambda: self.replace_outside(data.draw(files)), lambda: self.remove_outside(data.draw(files))]
        if world == "bucket":
            kinds += [self.delete_bucket, self.create_bucket]
        if self.state.uploads:
            uploads = st.sampled_from(list(self.state.uploads)[-2:])
            kinds += [lambda: self.finish(data.draw(uploads)), lambda: self.cancel(data.draw(uploads))]
        if self.state.parts:
            parts = st.sampled_from(list(self.state.parts)[-1:])
            kinds += [
                lambda: self.complete(data.draw(parts)),
                lambda: self.send_part(data.draw(parts)),
                lambda: self.abort(data.draw(parts)),
            ]
        return data.draw(st.sampled_from(kinds))()

    def alone(self, deed: Deed) -> None:
        note(deed.name)
        found = result_of(deed.run)
        ((((expected,),), self.state),) = outcomes(self.state, [[deed]])
        assert found == expected

    def start_upload(self, name: str) -> None:
        body, mark = self.new()
        upload = self.store.uploads.start("data", name, self.marked(mark)).id
        self.store.uploads.append(upload, 0, body)
        self.state.uploads[upload] = Upload(name, body, mark)

    def start_parts(self) -> None:
        body, mark = self.new()
        upload = self.store.multiparts.start("data", "b", self.marked(mark)).id
        with self.store.multiparts.open_part(upload, 1) as writer:
            writer.write(body)
            writer.commit()
        self.state.parts[upload] = Parts(mark, {1: body})

    @rule(
        data=st.data(),
        before=st.sampled_from(["nothing", "a file from outside", "an upload", "parts"]),
        world=st.sampled_from(["objects", "outside", "bucket"]),
        name=st.sampled_from(NAMES),
        lengths=st.sampled_from([(1, 1), (1, 1), (1, 2), (2, 2)]),
        seed=st.integers(0, 1 << 30),
    )
    def together(
        self, data: st.DataObject, before: str, world: str, name: str, lengths: tuple[int, int], seed: int
    ) -> None:
        if before == "a file from outside" and name in FILES:
            self.alone(self.replace_outside(name))
        if before == "an upload":
            self.start_upload(name)
        if before == "parts":
            self.start_parts()
        actors = [[self.drawn(data, world, name) for _ in range(length)] for length in lengths]
        note(" || ".join(" then ".join(deed.name for deed in actor) for actor in actors))
        self.explained(actors, seed)
        if not self.state.bucket:
            self.store.create_bucket("data")
            self.state.bucket = True

    def explained(self, actors: list[list[Deed]], seed: int) -> None:
        """Runs the actions of actors in parallel, and checks that some order of their steps explains the outcome."""

        def run(actor: list[Deed]) -> Callable[[], list[Result]]:
            return lambda: [result_of(deed.run) for deed in actor]

        found = interleaved(self.store, Random(seed), *map(run, actors))
        for each in found:
            if isinstance(each, BaseException):
                raise each
        possible = [(results, state) for results, state in outcomes(self.state, actors) if results == found]
        assert possible, f"no order gives {found}"
        shown = self.shown()
        fitting = [state for _, state in possible if self.expected(state) == shown]
        assert fitting, f"{shown} is none of {[self.expected(state) for _, state in possible]}"
        self.state = fitting[0]
        self.nothing_is_left_over()

    def expected(self, state: State) -> State:
        """Returns a state in the form that :meth:`shown` returns."""
        parts = {upload: Parts(it.mark, dict.fromkeys(it.bodies, b"")) for upload, it in state.parts.items()}
        return dataclasses.replace(state, parts=parts)

    def shown(self) -> State:
        """Returns the state of the store after the actors have ended."""
        seen = State(bucket=any(bucket.name == "data" for bucket in self.store.buckets()))
        for found in self.store.list("data").objects if seen.bucket else ():
            mark = (found.fields.metadata or {}).get("mark")
            with self.store.open_read("data", found.name) as reader:
                assert reader.object == found
                seen.objects[found.name] = (reader.read(), mark)
            assert mark is None or self.generations.get(mark, found.generation) == found.generation
        for upload, it in self.state.uploads.items():
            with contextlib.suppress(NoSuchResource):
                finished = self.store.uploads.get(upload).finished
                seen.uploads[upload] = dataclasses.replace(it, finished=finished is not None)
        for upload, parts in self.state.parts.items():
            with contextlib.suppress(NoSuchResource):
                numbers = [part.number for part in self.store.multiparts.get(upload).parts]
                seen.parts[upload] = Parts(parts.mark, dict.fromkeys(numbers, b""))
        return seen

    def nothing_is_left_over(self) -> None:
        database, private = self.store._core.database, self.folder / ".t5x-harness"
        unfinished = {upload for upload, it in self.state.uploads.items() if not it.finished}
        assert set(os.listdir(private / "incoming")) == unfinished | database.part_bodies()
        aside = {record.body for record in database.records_from("data", b"") if record.place == "aside"}
        assert set(os.listdir(private / "aside")) == aside


RIVALS = ["write", "write if it is new", "write on its generation", "delete", "move", "copy", "list", "read", "finish"]


@pytest.mark.parametrize("rival", RIVALS)
@pytest.mark.parametrize("what", ["close", "close a new file", "unlink", "rename"])
def test_what_a_mount_does_to_a_file_and_what_the_api_does(what: str, rival: str) -> None:
    with contextlib.closing(TwoActors()) as world:
        for seed in range(40):
            prepared = [world.write("a", False), *([world.delete("a")] if what == "close a new file" else [])]
            world.explained([prepared, [world.write("z", False)]], seed)
            if rival == "finish":
                world.start_upload("a")
            deeds = {
                "write": lambda: world.write("a", False),
                "write if it is new": lambda: world.write("a", True),
                "write on its generation": lambda: world.write_on("a"),
                "delete": lambda: world.delete("a"),
                "move": lambda: world.move("a", "c"),
                "copy": lambda: world.copy("z", "a"),
                "list": world.list,
                "read": lambda: world.read("a"),
                "finish": lambda: world.finish(list(world.state.uploads)[-1]),
            }
            if what.startswith("close"):
                at_mount = world.close_at_mount("a")
            else:
                at_mount = world.at_mount(what, "a", "b" if what == "rename" else "")
            world.explained([[at_mount], [deeds[rival]()]], seed)


def test_a_finished_upload_is_cancelled_once() -> None:
    with contextlib.closing(TwoActors()) as world:
        for seed in range(40):
            world.start_upload("a")
            upload = list(world.state.uploads)[-1]
            world.explained([[world.finish(upload)]], seed)
            world.explained([[world.cancel(upload)], [world.cancel(upload)]], seed)


TestTwoActors = TwoActors.TestCase
TestTwoActors.settings = settings(
    max_examples=int(os.environ.get("TWO_ACTORS_EXAMPLES", "60")),
    stateful_step_count=12,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking an example takes minutes
    derandomize="TWO_ACTORS_EXAMPLES" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
