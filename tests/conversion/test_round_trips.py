"""From T5X and back: the same arrays, bit for bit, with the same names and step; and training can continue."""

import dataclasses
import itertools
import json
import re
import struct
import weakref
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tiny_models import BFLOAT16, KINDS, STEP, parameters_of, shapes_of, variables_of, write

from t5x_harness.conversion import conversion as conversions
from t5x_harness.conversion.conversion import convert
from t5x_harness.conversion.request import ConversionRequest, Form
from t5x_harness.conversion.stored import StoredParameters, read_t5x

RECORDED = Path(__file__).parents[1] / "reference/checkpoint_8"


def assert_same(one: StoredParameters, other: StoredParameters) -> None:
    assert one.tensors == other.tensors
    for name in one.shapes:
        assert one.read(name).tobytes() == other.read(name).tobytes(), name


def to(form: Form, checkpoint: Path | str, output: Path, **settings: Any) -> Path:
    return Path(convert(ConversionRequest(str(checkpoint), form, str(output), **settings)).output)


@pytest.mark.parametrize("kind", KINDS)
def test_by_transformers_and_back(tmp_path: Path, kind: str) -> None:
    checkpoint = write(tmp_path / "run", kind)
    made = convert(ConversionRequest(str(checkpoint), Form.TRANSFORMERS, str(tmp_path / "hf"), shard_bytes=20_000))
    assert made.model_type == ("t5" if kind == "mt5" else KINDS[kind].model_type), "it is told by its arrays"
    back = to(Form.T5X, made.output, tmp_path / "back")
    assert back == tmp_path / f"back/checkpoint_{STEP}"
    assert_same(read_t5x(str(checkpoint)), read_t5x(str(back)))
    assert read_t5x(str(back)).step == STEP


def test_what_t5x_itself_wrote(tmp_path: Path) -> None:
    made = convert(ConversionRequest(str(RECORDED), Form.TRANSFORMERS, str(tmp_path / "hf")))
    assert (made.layout, made.step, made.arrays) == ("orbax", 8, 52)
    assert made.left_out == ("208 other arrays, such as the optimizer's state",)
    assert made.config == (str(RECORDED.parent / "config.gin"),)
    assert_same(read_t5x(str(RECORDED)), read_t5x(str(to(Form.T5X, tmp_path / "hf", tmp_path / "back"))))


def test_element_types_are_kept_or_changed(tmp_path: Path) -> None:
    """The model is in bfloat16, but its norms are in float32."""

    def change(arrays: dict[str, Any]) -> None:
        arrays |= {name: a.astype(np.float32) for name, a in arrays.items() if name.endswith("scale")}

    checkpoint = write(tmp_path / "run", "umt5", dtype=BFLOAT16, change=change)
    made = convert(ConversionRequest(str(checkpoint), Form.TRANSFORMERS, str(tmp_path / "hf")))
    assert made.dtypes == ("bfloat16", "float32")
    assert json.loads((tmp_path / "hf/config.json").read_text())["torch_dtype"] == "bfloat16"
    assert_same(read_t5x(str(checkpoint)), read_t5x(str(to(Form.T5X, tmp_path / "hf", tmp_path / "back"))))
    half = to(Form.T5X, checkpoint, tmp_path / "half", dtype="float16", step=5)
    assert {each.dtype for each in read_t5x(str(half)).tensors.values()} == {"float16"}
    assert read_t5x(str(half)).step == 5


def test_the_parameters_alone_of_any_network(tmp_path: Path) -> None:
    def change(arrays: dict[str, Any]) -> None:
        arrays["decoder/adapter/kernel"] = np.arange(6, dtype=np.float32).reshape(2, 3)

    checkpoint = write(tmp_path / "run", "t5_1_1", change=change)
    folder = to(Form.SAFETENSORS, checkpoint, tmp_path / "arrays", shard_bytes=30_000)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert index["weight_map"].keys() == read_t5x(str(checkpoint)).shapes.keys()
    back = to(Form.T5X, folder, tmp_path / "back")
    assert_same(read_t5x(str(checkpoint)), read_t5x(str(back)))


def test_the_file_is_one_of_safetensors(tmp_path: Path) -> None:
    checkpoint = write(tmp_path / "run", "t5_1_1")
    to(Form.TRANSFORMERS, checkpoint, tmp_path / "hf")
    content = (tmp_path / "hf/model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    assert header.pop("__metadata__")["format"] == "pt"
    ends = sorted(entry["data_offsets"] for entry in header.values())
    assert (ends[0][0], ends[-1][1]) == (0, len(content) - 8 - length)
    assert all(one[1] == other[0] for one, other in itertools.pairwise(ends))
    begin, end = header["lm_head.weight"]["data_offsets"]
    kernel = np.frombuffer(content[8 + length + begin : 8 + length + end], np.float32)
    np.testing.assert_array_equal(kernel.reshape(300, 16).T, parameters_of("t5_1_1")["decoder/logits_dense/kernel"])


def test_t5x_restores_it_for_inference(tmp_path: Path) -> None:
    from t5x import checkpoints, partitioning, train_state

    checkpoint = write(tmp_path / "run", "t5_1_1")
    back = to(Form.T5X, to(Form.TRANSFORMERS, checkpoint, tmp_path / "hf"), tmp_path / "back")
    like = train_state.InferenceState.create(variables_of("t5_1_1"))
    like = like.replace(step=jax.ShapeDtypeStruct((), np.int32))
    manager = checkpoints.OrbaxCheckpointManagerInterface(
        str(tmp_path / "back"), like, partitioning.PjitPartitioner(num_partitions=1)
    )
    state = manager.restore(path=str(back))
    assert int(state.step) == STEP
    np.testing.assert_array_equal(
        state.params["decoder"]["layers_1"]["mlp"]["wi_0"]["kernel"],
        parameters_of("t5_1_1")["decoder/layers_1/mlp/wi_0/kernel"],
    )


def test_layers_are_scanned_or_not_as_asked(tmp_path: Path) -> None:
    checkpoint = write(tmp_path / "run", "umt5_not_scanned")
    folder = to(Form.TRANSFORMERS, checkpoint, tmp_path / "hf")
    scanned = read_t5x(str(to(Form.T5X, folder, tmp_path / "scanned", scanned=True)))
    assert scanned.shapes == shapes_of("umt5")
    again = to(Form.TRANSFORMERS, scanned.where, tmp_path / "again")
    assert_same(read_t5x(str(checkpoint)), read_t5x(str(to(Form.T5X, again, tmp_path / "back", scanned=False))))


@pytest.mark.parametrize("form", Form)
def test_one_array_is_in_memory_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Form) -> None:
    held = most = read = 0
    opened = conversions._opened  # opens the source of a conversion

    def counting(request: ConversionRequest) -> Any:
        source, sizes = opened(request)
        whole = source.read_array

        def read_array(name: str) -> Any:
            nonlocal held, most, read
            array = np.array(whole(name))
            held += array.nbytes
            most, read = max(most, held), read + 1
            weakref.finalize(array, let_go, array.nbytes)
            return array

        return dataclasses.replace(source, read_array=read_array), sizes

    def let_go(size: int) -> None:
        nonlocal held
        held -= size

    checkpoint = write(tmp_path / "run", "umt5")
    monkeypatch.setattr(conversions, "_opened", counting)
    to(form, checkpoint, tmp_path / "out")
    largest = max(array.nbytes for array in parameters_of("umt5").values())
    assert read == len(shapes_of("umt5"))
    assert largest <= most <= 2 * largest


TEST = """
import pytest
from t5x_harness import CONFIGS, ConversionError, convert

RESTORE = '''{restore}'''


def test_training_goes_on(t5x_run, tmp_path):
    gin = CONFIGS / "finetune_classify.gin"
    first = t5x_run(gin, search_paths=[CONFIGS])
    with pytest.raises(ValueError, match="no checkpoint at step 7: it has 10000, 10002, 10004"):
        convert(first, step=7)
    model = convert(first, tmp_path / "hf", check=False)
    assert (model.step, model.model_type, model.config) == (first.steps, "t5", ("the config of the run",))
    with pytest.raises(ConversionError, match="hf holds config.json"):
        convert(first, tmp_path / "hf", check=False)
    restored = convert(model.output, tmp_path / "restored", to="t5x")
    (tmp_path / "again.gin").write_text(
        "from __gin__ import dynamic_registration\\nfrom t5x import utils\\n"
        f"include '{{gin}}'\\n" + RESTORE.replace("restored/checkpoint_1000", restored.output)
    )
    again = t5x_run(tmp_path / "again.gin", search_paths=[CONFIGS])
    assert dict(again.stage("train").facts)["starts from"] == restored.output
    assert min(again.metrics["train/loss"]) == first.steps + 1
"""


@pytest.mark.journey
@pytest.mark.usefixtures("imported")
def test_a_trained_model_comes_back(pytester: pytest.Pytester, repository: Path) -> None:
    page = (repository / "docs/conversion.md").read_text()
    (restore,) = re.findall(r"^```gin\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    pytester.makepyfile(TEST.format(restore=restore))
    pytester.runpytest_subprocess("--t5x-runtime=embedded").assert_outcomes(passed=1)
