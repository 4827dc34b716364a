"""Untrusted safetensors folders: nothing outside of them is read, and only ConversionError is raised."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_models

from t5x_harness.conversion.request import ConversionError
from t5x_harness.conversion.safetensors_files import INDEX, SINGLE, SafetensorsFolder
from t5x_harness.conversion.stored import read_t5x
from t5x_harness.conversion.transformers_folder import read_transformers

CONFIG = dict.fromkeys(("vocab_size", "d_model", "num_heads", "d_kv", "d_ff", "num_layers"), 1) | {"model_type": "mt5"}
ENTRY = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


def write(file: Path, header: Any, data: bytes = b"\0" * 4) -> Path:
    """Writes a safetensors file with any header, given as a JSON value or as text."""
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return file


def index(folder: Path, **weight_map: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    return folder


def refused(folder: Path, read: Callable[[Path], Any] = SafetensorsFolder) -> str:
    with pytest.raises(ConversionError) as error:
        read(folder)
    return str(error.value)


@pytest.mark.parametrize("name", ["../out.safetensors", "{absolute}", "sub/x.safetensors", "..", "", 7, "x" * 300])
def test_an_index_names_files_of_its_folder_only(tmp_path: Path, name: Any) -> None:
    outside = write(tmp_path / "out.safetensors", {"w": ENTRY})
    named = str(outside) if name == "{absolute}" else name
    folder = index(tmp_path / "model", w=named)
    assert refused(folder).startswith(
        f"{folder / INDEX} names {named!r}, which is not the name of a file in {folder}: nothing outside"
    )


@pytest.mark.parametrize("name", [SINGLE, "part.safetensors"])
def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path, name: str) -> None:
    outside = write(tmp_path / "out.safetensors", {"w": ENTRY})
    folder = index(tmp_path / "model", w=name)
    (folder / name).symlink_to(outside)
    assert refused(folder) == (
        f"{folder / name} is a link to {outside}, outside of the folder, and is not read: copy the file into the folder"
    )


def test_links_within_the_folder_and_of_the_hub_s_cache_are_followed(tmp_path: Path) -> None:
    write(tmp_path / "model/real", {"w": ENTRY})
    (tmp_path / "model" / SINGLE).symlink_to("real")
    assert list(SafetensorsFolder(tmp_path / "model").tensors) == ["w"]
    write(tmp_path / "hub/blobs/0a1b", {"w": ENTRY})
    snapshot = tmp_path / "hub/snapshots/1234"
    snapshot.mkdir(parents=True)
    (snapshot / SINGLE).symlink_to("../../blobs/0a1b")
    assert list(SafetensorsFolder(snapshot).tensors) == ["w"]


def test_an_array_of_two_files(tmp_path: Path) -> None:
    folder = index(tmp_path, w="a", v="b")
    files = [write(folder / name, {"w": ENTRY}) for name in ("a", "b")]
    assert refused(folder) == f"w is in {files[0]} and in {files[1]}: remove one of them"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ({"w": ENTRY | {"shape": [-1, -1]}}, "w has no dtype, shape and data_offsets"),
        ({"w": ENTRY | {"shape": [True]}}, "w has no dtype, shape and data_offsets"),
        ({"w": ENTRY | {"shape": [2**70]}}, "w has no dtype, shape and data_offsets"),
        ({"w": ENTRY | {"shape": 1}}, "w has no dtype, shape and data_offsets"),
        ({"w": ENTRY | {"dtype": ["F32"]}}, "w has no dtype, shape and data_offsets"),
        ({"w": ENTRY | {"data_offsets": [0, 4, 8]}}, "w has no dtype, shape and data_offsets"),
        ({"w": ENTRY | {"data_offsets": [0, 400]}}, "is damaged: w should lie at bytes 0 to 400 of 4"),
        ({"w": ENTRY | {"dtype": "F8_E4M3"}}, "w is F8_E4M3, which T5X does not have"),
        ({"w": None}, "w has no dtype, shape and data_offsets"),
        ({"__metadata__": {"t5x_step": 7}}, "__metadata__ is not made of texts"),
        ({"__metadata__": 7}, "__metadata__ is not made of texts"),
        ('{"w": 1, "w": 2}', "w is there twice"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "not an object of JSON"),
    ],
)
def test_headers(tmp_path: Path, header: Any, expected: str) -> None:
    write(tmp_path / SINGLE, header)
    assert expected in refused(tmp_path)


def test_a_header_that_is_longer_than_its_file(tmp_path: Path) -> None:
    (tmp_path / SINGLE).write_bytes(struct.pack("<Q", 2**60) + b"{}")
    assert "a header of 1152921504606846976 bytes" in refused(tmp_path)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"num_layers": 10**9}, "num_layers is 1000000000, and a whole number from 1 to 1 is expected"),
        ({"num_decoder_layers": 10**9}, "num_decoder_layers is 1000000000, and a whole number from 1 to 1"),
        ({"d_model": True}, "d_model is True, and a whole number"),
        ({"d_ff": -1}, "d_ff is -1, and a whole number"),
        ({"relative_attention_num_buckets": "x"}, "relative_attention_num_buckets is 'x', and a whole number"),
    ],
)
def test_sizes_in_a_config(tmp_path: Path, config: dict[str, Any], expected: str) -> None:
    write(tmp_path / SINGLE, {"w": ENTRY})
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | config))
    assert expected in refused(tmp_path, read_transformers)


@pytest.mark.parametrize("layout", ["[[", '{"scan_axis": 7}', '{"scan_axis": true}', '{"joined_heads": 1}'])
def test_a_layout_that_this_harness_did_not_write(tmp_path: Path, layout: str) -> None:
    write(tmp_path / SINGLE, {"__metadata__": {"t5x_layout": layout}, "w": ENTRY})
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert "t5x_layout in the header of its arrays is damaged" in refused(tmp_path, read_transformers)


def test_arrays_of_t5x_s_older_layout_lie_in_the_checkpoint(tmp_path: Path) -> None:
    checkpoint = tiny_models.write(tmp_path / "run", "t5_1_1")
    content = (checkpoint / "checkpoint").read_bytes()
    name = b"target.decoder.logits_dense.kernel"
    assert name in content
    (checkpoint / "checkpoint").write_bytes(content.replace(name, b"../" + name[3:]))
    source = read_t5x(str(checkpoint))
    with pytest.raises(
        ConversionError, match=r"cannot be read: it is said to lie at \.\./get\..*, outside of the check"
    ):
        source.read("decoder/logits_dense/kernel")


def test_numbers_in_headers(tmp_path: Path) -> None:
    write(tmp_path / SINGLE, {"__metadata__": {"a": "12", "b": "9" * 5000, "c": "-1"}})
    folder = SafetensorsFolder(tmp_path)
    assert [folder.number(key) for key in "abcd"] == [12, None, None, None]
