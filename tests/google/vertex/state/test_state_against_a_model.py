"""A store behaves like a dictionary after any sequence of operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from t5x_harness.google.vertex.state import StateError, StateStore

KEYS = st.sampled_from(["a", "a/b", "a/b/c", "a#x", "ab", "b", "é/1", "\U0001f600", "b\n"])
DATA = st.binary(max_size=4)
WORDS = st.sampled_from(["x", "y", "é"])


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
                with pytest.raises(StateError):
                    use(key)
                with pytest.raises(StateError):
                    reads[kind](key)

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
