"""Messages survive any splitting of the stream, and garbage is reported."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t5x_harness.workers.framing import FrameReader, ProtocolError, encode, not_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(st.lists(JSON, max_size=6), st.data())
def test_any_messages_cut_anywhere_come_out_in_order(messages: list[object], data: st.DataObject) -> None:
    stream = b"".join(encode(message) for message in messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    reader = FrameReader()
    came = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        came += reader.feed(stream[start:end])
    assert came == messages
    assert not reader._buffer


@given(st.binary(min_size=4, max_size=100))
def test_garbage_gives_messages_or_waiting_or_a_protocol_error(garbage: bytes) -> None:
    reader = FrameReader()
    with contextlib.suppress(ProtocolError):
        messages = reader.feed(garbage)
        assert len(reader._buffer) + 4 * len(messages) <= len(garbage)


@pytest.mark.parametrize(
    ("garbage", "message"),
    [
        (b"GET / HTTP/1.1\r\n", r"a frame claims 1195725856 bytes"),
        (b"\0\0\0\2{]", "a frame holds no JSON"),
        (b"\0\0\0\1\xff", "a frame holds no JSON"),
        (b"\0\1\x86\xa0" + b"[" * 100_000, "a frame holds no JSON"),
    ],
    ids=["not frames", "not JSON", "not text", "too deep"],
)
def test_what_is_no_message_is_told(garbage: bytes, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        FrameReader().feed(garbage)


@given(JSON)
def test_nothing_is_found_wrong_with_json(value: object) -> None:
    assert not_json(value) is None
    json.dumps(value)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({1}, "set at value"),
        ({"a": [0, {"b": b"x"}]}, "bytes at value['a'][1]['b']"),
        ((1, (object(),)), "object at value[1][0]"),
        ({"a": {(1, 2): 3}}, "tuple as a key of value['a']"),
        (3j, "complex at value"),
    ],
)
def test_the_place_of_what_is_no_json_is_found(value: object, found: str) -> None:
    assert not_json(value) == found
    with pytest.raises(TypeError):
        encode(value)


def test_a_value_that_contains_itself_is_found() -> None:
    value: dict[str, object] = {}
    value["a"] = [value]
    assert not_json(value) == "dict that contains itself at value['a'][0]"
    with pytest.raises(ValueError, match="Circular reference"):
        encode(value)
