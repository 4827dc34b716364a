"""After any operations, outside changes and restarts, a store has the content that a dictionary would have."""

import dataclasses
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from expected_listing import expected_listing
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule

from t5x_harness.google.storage.errors import Invalid, NoSuchResource, PreconditionFailed
from t5x_harness.google.storage.names import object_fault
from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.google.storage.values import ListingQuery, ObjectFields, Preconditions, SourceObject, StoredObject

PARTS = ["a", "b", "a!", "a0", "", ".", "..", "é", "x" * 256, "\0"]
names = st.lists(st.sampled_from(PARTS), min_size=1, max_size=4).map("/".join).filter(lambda it: not object_fault(it))
file_names = st.lists(st.sampled_from(["a", "b", "a!", "a0", "é"]), min_size=1, max_size=3).map("/".join)
bodies = st.binary(max_size=6)


@dataclasses.dataclass
class Expected:
    body: bytes
    fields: ObjectFields = dataclasses.field(default_factory=ObjectFields)
    found: StoredObject | None = None  # for outside changes, unknown until the store looks at them


class StoreMachine(RuleBasedStateMachine):
    uploads = Bundle("uploads")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="storage-model-"))
        self.tree = self.folder / "buckets" / "data"
        self.store = ObjectStore(self.folder)
        self.store.create_bucket("data")
        self.model: dict[str, Expected] = {}
        self.newest = 0

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    def wrote(self, written: StoredObject, body: bytes, fields: ObjectFields) -> None:
        assert written.generation > self.newest
        assert written.fields == fields
        self.newest = written.generation
        self.model[written.name] = Expected(body, fields, written)

    @rule(name=names, body=bodies, kind=st.none() | st.text(max_size=3), only_new=st.booleans())
    def write(self, name: str, body: bytes, kind: str | None, only_new: bool) -> None:
        fields, condition = ObjectFields(content_type=kind), Preconditions(generation_match=0 if only_new else None)
        if only_new and name in self.model:
            with pytest.raises(PreconditionFailed):
                self.store.write("data", name, body, fields, condition)
        else:
            self.wrote(self.store.write("data", name, body, fields, condition), body, fields)

    @rule(name=names)
    def delete(self, name: str) -> None:
        if name in self.model:
            self.store.delete("data", name)
            del self.model[name]
        else:
            with pytest.raises(NoSuchResource):
                self.store.delete("data", name)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def delete_one(self, data: st.DataObject) -> None:
        self.delete(data.draw(st.sampled_from(sorted(self.model))))

    @precondition(lambda self: self.model)
    @rule(data=st.data(), kind=st.text(max_size=3))
    def patch(self, data: st.DataObject, kind: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.model)))
        before = self.store.stat("data", name)
        after = self.store.patch("data", name, ObjectFields(content_type=kind))
        assert (after.generation, after.metageneration) == (before.generation, before.metageneration + 1)
        self.newest = max(self.newest, after.generation)
        self.model[name] = Expected(self.model[name].body, after.fields, after)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), to=names)
    def copy(self, data: st.DataObject, to: str) -> None:
        source = self.model[name := data.draw(st.sampled_from(sorted(self.model)))]
        self.see_everything()
        self.wrote(self.store.copy(SourceObject("data", name), "data", to), source.body, source.fields)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), to=names)
    def compose(self, data: st.DataObject, to: str) -> None:
        sources = data.draw(st.lists(st.sampled_from(sorted(self.model)), min_size=1, max_size=3))
        self.see_everything()
        body = b"".join(self.model[name].body for name in sources)
        composed = self.store.compose("data", to, [SourceObject("data", name) for name in sources])
        self.wrote(composed, body, ObjectFields())

    @precondition(lambda self: self.model)
    @rule(data=st.data(), to=names)
    def move(self, data: st.DataObject, to: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.model)))
        if name == to:
            with pytest.raises(Invalid):
                self.store.move(SourceObject("data", name), to)
            return
        self.see_everything()
        moved = self.model.pop(name)
        self.wrote(self.store.move(SourceObject("data", name), to), moved.body, moved.fields)

    @rule(target=uploads, name=names, body=bodies)
    def start_upload(self, name: str, body: bytes) -> tuple[str, str, bytes]:
        upload = self.store.uploads.start("data", name)
        self.store.uploads.append(upload.id, 0, body[: len(body) // 2])
        return upload.id, name, body

    @rule(upload=uploads)
    def finish_upload(self, upload: tuple[str, str, bytes]) -> None:
        upload_id, _, body = upload
        found = self.store.uploads.get(upload_id)
        if found.finished is not None:
            assert self.store.uploads.finish(upload_id) == found.finished
            return
        assert found.received == len(body) // 2
        self.store.uploads.append(upload_id, found.received, body[found.received :])
        self.wrote(self.store.uploads.finish(upload_id), body, ObjectFields())

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = ObjectStore(self.folder)

    @rule(name=file_names, body=bodies)
    def write_outside(self, name: str, body: bytes) -> None:
        path = self.tree / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            return
        self.model[name] = Expected(body)

    @rule(name=file_names)
    def remove_outside(self, name: str) -> None:
        path = self.tree / name
        if path.is_file():
            path.unlink()
            del self.model[name]

    @rule(name=file_names)
    def make_folder_outside(self, name: str) -> None:
        try:
            (self.tree / name).mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            return

    @rule(name=st.sampled_from(["a", "b", "a/a"]))
    def remove_folder_outside(self, name: str) -> None:
        folder = self.tree / name
        if not folder.is_dir():
            return
        self.see_everything()  # an object that waits aside for the folder's place may take it
        files = [path for path in folder.rglob("*") if path.is_file()]
        folders = [path for path in [folder, *folder.rglob("*")] if path.is_dir()]
        shutil.rmtree(folder)
        for path in files:
            del self.model[str(path.relative_to(self.tree))]
        for path in folders:
            marker = self.model.get(f"{path.relative_to(self.tree)}/")
            if marker is not None and marker.body == b"":
                del self.model[f"{path.relative_to(self.tree)}/"]

    @rule(
        prefix=st.sampled_from(["", "a", "a/", "a//", "b/", "é", "./"]),
        delimiter=st.sampled_from(["", "/", "//", "a", "!"]),
        start=st.sampled_from(["", "a", "a/b", "b"]),
        end=st.sampled_from([None, "a0", "b", "x"]),
        trailing=st.booleans(),
        size=st.sampled_from([1, 2, 3, 1000]),
    )
    def list_some(self, prefix: str, delimiter: str, start: str, end: str | None, trailing: bool, size: int) -> None:
        query = ListingQuery(prefix, delimiter, None, start, end, trailing, None, size)
        expected = expected_listing(self.model, query)
        objects: list[str] = []
        prefixes: list[str] = []
        while True:
            page = self.store.list("data", query)
            assert len(page.objects) + len(page.prefixes) <= max(size, 2)
            objects += [found.name for found in page.objects]
            prefixes += page.prefixes
            if page.next_page is None:
                break
            query = dataclasses.replace(query, page_token=page.next_page)
        assert (objects, prefixes) == expected

    @invariant()
    def see_everything(self) -> None:
        listed = self.store.list("data").objects
        assert [found.name for found in listed] == sorted(self.model, key=str.encode)
        for found in listed:
            expected = self.model[found.name]
            if expected.found is None:  # seen for the first time since it was written from outside
                assert found.generation > self.newest or found.metageneration == 1
                expected.found = found
            assert found == expected.found
            assert found.fields == expected.fields
            with self.store.open_read("data", found.name) as reader:
                assert reader.object == found
                assert reader.read() == expected.body
            self.is_in_the_tree_unless_something_is_in_the_way(found.name, expected.body)
        self.newest = max([self.newest, *(found.generation for found in listed)])

    def is_in_the_tree_unless_something_is_in_the_way(self, name: str, body: bytes) -> None:
        parts = name.split("/")
        if any(part in ("", ".", "..") or "\0" in part or len(part.encode()) > 255 for part in parts):
            return
        above = ["/".join(parts[:index]) for index in range(1, len(parts))]
        if any((self.tree / folder).is_file() for folder in above) or (self.tree / name).is_dir():
            return
        assert (self.tree / name).read_bytes() == body


TestStore = StoreMachine.TestCase
TestStore.settings = settings(
    max_examples=int(os.environ.get("STORAGE_MODEL_EXAMPLES", "25")),
    stateful_step_count=25,
    deadline=None,
    derandomize="STORAGE_MODEL_EXAMPLES" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
