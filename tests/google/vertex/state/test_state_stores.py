"""A store behaves like a dictionary, keeps its promises to concurrent users, and is opened by its URL."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, NoReturn

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from t5x_harness.google.server.listener import Peers
from t5x_harness.google.vertex.state import StateError, StateStore, open_store, redis_store

KEYS = st.sampled_from(["a", "a/b", "a/b/c", "a#x", "ab", "b", "é/1", "\U0001f600", "b\n"])
DATA = st.binary(max_size=4)
WORDS = st.sampled_from(["x", "y", "é"])
NAMES: dict[type, str] = {bytes: "value", list: "list", set: "set"}


class _Model(RuleBasedStateMachine):
    store: ClassVar[StateStore]

    def __init__(self) -> None:
        super().__init__()
        self.store.clear()
        self.model: dict[str, Any] = {}

    def _holds(self, key: str, kind: type) -> bool:
        """Returns whether a key can be used as a kind; otherwise the store has to refuse it."""
        return key not in self.model or isinstance(self.model[key], kind)

    @rule(key=KEYS, value=DATA)
    def put(self, key: str, value: bytes) -> None:
        if self._holds(key, bytes):
            self.store.put(key, value)
            self.model[key] = value

    @rule(key=KEYS, value=DATA)
    def create(self, key: str, value: bytes) -> None:
        assert self.store.create(key, value) == (key not in self.model)
        self.model.setdefault(key, value)

    @rule(key=KEYS, value=DATA)
    def update(self, key: str, value: bytes) -> None:
        if self._holds(key, bytes):
            expected = self.model[key] + value if key in self.model else None
            assert self.store.update(key, lambda kept: kept + value) == expected
            if expected is not None:
                self.model[key] = expected

    @rule(key=KEYS)
    def delete(self, key: str) -> None:
        assert self.store.delete(key) == (self.model.pop(key, None) is not None)

    @rule(key=KEYS, values=st.lists(DATA, max_size=3))
    def append(self, key: str, values: list[bytes]) -> None:
        if self._holds(key, list):
            expected = [*self.model.get(key, []), *values]
            assert self.store.append(key, *values) == len(expected)
            if expected:
                self.model[key] = expected

    @rule(key=KEYS, start=st.integers(0, 4), stop=st.none() | st.integers(0, 4))
    def read(self, key: str, start: int, stop: int | None) -> None:
        if self._holds(key, list):
            assert self.store.read(key, start, stop) == self.model.get(key, [])[start:stop]

    @rule(key=KEYS, member=WORDS)
    def add(self, key: str, member: str) -> None:
        if self._holds(key, set):
            members = self.model.setdefault(key, set())
            assert self.store.add(key, member) == (member not in members)
            members.add(member)

    @rule(key=KEYS, member=WORDS)
    def discard(self, key: str, member: str) -> None:
        if self._holds(key, set):
            members = self.model.get(key, set())
            assert self.store.discard(key, member) == (member in members)
            members.discard(member)
            if not members:
                self.model.pop(key, None)

    @rule(key=KEYS)
    def refuse_another_kind(self, key: str) -> None:
        uses: dict[type, Callable[[str], object]] = {
            bytes: lambda key: self.store.put(key, b""),
            list: lambda key: self.store.append(key, b""),
            set: lambda key: self.store.add(key, "x"),
        }
        reads = {bytes: self.store.get, list: self.store.read, set: self.store.members}
        for kind, use in uses.items():
            if not self._holds(key, kind):
                for call in (use, reads[kind]):
                    with pytest.raises(
                        StateError, match=f"{key} holds a {NAMES[type(self.model[key])]}, not a {NAMES[kind]}$"
                    ):
                        call(key)

    @rule(key=KEYS)
    def raise_what_a_function_raises(self, key: str) -> None:
        """An error in a function that gets the value is raised, and changes and removes nothing."""

        def fail(kept: bytes) -> NoReturn:
            raise KeyError(kept)

        for change in (self.store.update, self.store.delete):
            if key not in self.model:
                assert not change(key, fail)
            else:
                expected = KeyError if isinstance(self.model[key], bytes) else StateError
                with pytest.raises(expected):
                    change(key, fail)

    @rule(prefix=st.sampled_from(["", "a", "a/", "é", "zz"]))
    def keys(self, prefix: str) -> None:
        assert self.store.keys(prefix) == sorted(key for key in self.model if key.startswith(prefix))

    @invariant()
    def everything_is_there(self) -> None:
        values = {key: value for key, value in self.model.items() if isinstance(value, bytes)}
        assert self.store.get_all(sorted(values)) == [values[key] for key in sorted(values)]
        for key, value in self.model.items():
            if isinstance(value, set):
                assert self.store.members(key) == value
            elif isinstance(value, list):
                assert self.store.read(key) == value


def test_a_store_is_as_a_dictionary(store: StateStore) -> None:
    machine = type("Machine", (_Model,), {"store": store})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=40,
            stateful_step_count=25,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


# State in memory belongs to one process, so no operations can interleave.
several_may_write = pytest.mark.parametrize("opened", ["fakeredis", "redis"], indirect=True)


def test_updates_of_many_threads_are_all_kept(store: StateStore, other: StateStore) -> None:
    store.put("count", b"0")

    def count(number: int) -> None:
        for _ in range(25):
            (store, other)[number % 2].update("count", lambda kept: str(int(kept) + 1).encode())

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(count, range(4)))
    assert store.get("count") == b"100"


def test_one_of_many_creates(store: StateStore, other: StateStore) -> None:
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda number: (store, other)[number % 2].create("key", bytes([number])), range(8)))
    assert (made.count(True), store.get("key")) == (1, bytes([made.index(True)]))


def test_appends_of_many_threads_are_all_kept_in_each_ones_order(store: StateStore) -> None:
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda n: [store.append("log", bytes([n, m])) for m in range(20)], range(4)))
    lines = store.read("log")
    assert len(lines) == 80
    for number in range(4):
        assert [line[1] for line in lines if line[0] == number] == list(range(20))


@several_may_write
@pytest.mark.parametrize(("method", "outcome"), [("update", b"2!"), ("delete", True)])
def test_a_value_is_read_again_when_somebody_was_faster(
    store: StateStore, other: StateStore, method: str, outcome: object
) -> None:
    store.put("key", b"1")
    seen: list[bytes] = []

    def look(kept: bytes) -> bytes:
        if not seen:
            other.put("key", b"2")
        seen.append(kept)
        return kept + b"!"

    assert getattr(store, method)("key", look) == outcome
    assert seen == [b"1", b"2"]


@several_may_write
def test_another_process_sees_the_same_state(store: StateStore) -> None:
    store.put("job/1", b"made here")
    program = (
        "import sys; from t5x_harness.google.vertex.state import open_store\n"
        "store = open_store(sys.argv[1]); print(store.get('job/1')); store.put('job/2', b'made there'); store.close()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, store.url], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout, done.stderr) == ("b'made here'\n", "")
    assert store.get("job/2") == b"made there"


@pytest.mark.parametrize("url", ["", "memory", "redis", "mysql://localhost/db", "memory:x", "/tmp/state"])
def test_what_is_no_state(url: str) -> None:
    with pytest.raises(StateError, match="is not a state: use memory:, fakeredis: or redis://HOST:PORT/DB"):
        open_store(url)


def test_a_state_that_nobody_answers_for() -> None:
    with pytest.raises(StateError, match="unix:///none\\?db=0 cannot be used for state: ") as caught:
        open_store("unix://user:secret@/none?db=0")
    assert "secret" not in str(caught.value)


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(
        StateError, match=r"needs redis, not installed here: python -m pip install 't5x-harness\[vertex"
    ):
        open_store("redis://127.0.0.1:1/0")


def test_a_fake_redis_ends_with_its_store() -> None:
    before = threading.active_count()
    store = open_store("fakeredis:")
    url = store.url
    store.close()
    assert threading.active_count() == before
    with pytest.raises(StateError, match=r"redis://127\.0\.0\.1:\d+/0 cannot be used for state: "):
        open_store(url)


def test_a_fake_redis_serves_its_own_user_and_root(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    somebody = os.geteuid() + 1
    monkeypatch.setattr(redis_store, "Peers", lambda: Peers([somebody]))
    with pytest.raises(StateError, match=r"redis://127\.0\.0\.1:\d+/0 cannot be used for state: "):
        open_store("fakeredis:")
    refusal = f" is refused: it belongs to the user with uid {os.geteuid()}\n"
    assert refusal in capfd.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests are those of an ordinary user")
def test_another_user_can_neither_read_nor_write_a_fake_redis() -> None:
    store = open_store("fakeredis:")
    try:
        store.put("tpu", b"mine")
        port = int(store.url.rpartition(":")[2].partition("/")[0])
        said, saying = os.pipe()
        if (child := os.fork()) == 0:
            try:
                os.setresuid(65534, 65534, 65534)
                with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                    connection.sendall(b"SET t5x-harness:value:tpu theirs\r\n")
                    os.write(saying, connection.recv(100) or b"nothing")
            except ConnectionError:
                os.write(saying, b"nothing")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        os.close(saying)
        with open(said, "rb") as answer:
            assert answer.read() == b"nothing"
        assert store.get("tpu") == b"mine"
    finally:
        store.close()


def test_a_state_that_is_lost_is_told_whatever_is_asked() -> None:
    server = open_store("fakeredis:")
    store = open_store(server.url)
    server.close()
    asked: list[Callable[[], object]] = [
        lambda: store.get("key"),
        lambda: store.put("key", b"value"),
        lambda: store.create("key", b"value"),
        lambda: store.update("key", bytes),
        lambda: store.delete("key"),
        lambda: store.delete("key", bytes),
        lambda: store.keys(""),
        lambda: store.read("key"),
        lambda: store.append("key", b"value"),
        lambda: store.discard("key", "member"),
        store.clear,
    ]
    for ask in asked:
        with pytest.raises(StateError, match=r"the state at redis://127\.0\.0\.1:\d+/0 is lost: "):
            ask()
    store.close()
