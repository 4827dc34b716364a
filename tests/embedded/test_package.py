"""The package itself: its names, the modules that it imports when used, where names are defined, and what is absent."""

import ast
import importlib
import inspect
import json
import re
import runpy
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import seqio
import t5x
import tensorstore as ts
from t5x import (
    _absent,
    adafactor,
    checkpoint_importer,
    checkpoints,
    decoding,
    infer,
    models,
    optimizers,
    partitioning,
    train,
    train_state,
    trainer,
    utils,
)
from t5x import eval as eval_lib

from t5x_harness.runtime.import_hooks import EMBEDDED_PATH

REPOSITORY = Path(__file__).parents[2]
fidelity = types.SimpleNamespace(**runpy.run_path(str(REPOSITORY / "benchmarks" / "fidelity.py")))
PACKAGE = REPOSITORY / "t5x_harness" / "embedded" / "t5x"
API: dict[str, dict[str, Any]] = json.loads((REPOSITORY / "tests" / "reference" / "api.json").read_text())
PAGE = (REPOSITORY / "docs" / "fidelity.md").read_text()


def test_checkpointing_is_the_name_to_come_of_checkpoints() -> None:
    assert t5x.checkpointing is checkpoints
    with pytest.raises(AttributeError, match="module 't5x' has no attribute 'modles'"):
        t5x.modles  # noqa: B018


@pytest.mark.parametrize(
    ("module", "instead"),
    [
        ("t5x.contrib.moe", r"no t5x\.contrib: t5x\.contrib \(moe, calm, gpu\) .*: install T5X itself"),
        ("t5x.fiddle_configs.configs.pretrain", r"no t5x\.fiddle_configs: .*, which --fdl_config takes"),
        ("t5x.scripts.convert_tf_checkpoint", r"no t5x\.scripts: .* RestoreCheckpointConfig\.path"),
        ("t5x.tasks", r"no t5x\.tasks: .*import the module that registers the tasks"),
    ],
)
def test_a_module_that_is_not_there_says_what_there_is_instead(module: str, instead: str) -> None:
    with pytest.raises(ImportError, match=f"^the embedded T5X runtime has {instead}"):
        importlib.import_module(module)


def test_a_name_that_is_not_there_says_what_there_is_instead() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'mlpblock' in the .*: t5x.*\.t5_importer\.apply "):
        checkpoint_importer.mlpblock  # noqa: B018
    for name, absent in _absent.NAMES.items():
        assert [symbol for symbol in absent if hasattr(importlib.import_module(name), symbol)] == [], name


def test_aliases_that_forks_import_are_there() -> None:
    assert adafactor.Dtype is optimizers.Dtype
    assert partitioning.JaxDevice is jax.Device
    assert (partitioning.TpuMesh, partitioning.OtherMesh) == (tuple[int, int, int, int], tuple[int, int])
    assert decoding.PyTreeDef is models.PyTreeDef is checkpoints.PyTreeDef is jax.tree_util.PyTreeDef
    assert isinstance(np.ones(1), models.Array)
    assert isinstance(jnp.ones(1), trainer.Array)
    assert isinstance(jax.random.PRNGKey(0), trainer.Rng)
    assert isinstance(3, checkpoint_importer.ScalarOrArrayType)
    for name in ("BatchSpec", "BatchType", "MetricMapSpec", "ModelWeights", "MutableMetricMapType"):
        assert hasattr(trainer, name)
    for name in ("FrozenVariableDict", "MutableVariableDict", "VariableDict"):
        assert hasattr(train_state, name)


def test_lazy_arrays_take_shape_and_dtype_of_what_they_stand_for() -> None:
    async def read() -> np.ndarray:
        return np.arange(3)

    make = checkpoint_importer.LazyAwaitableArray.from_tensor_store_spec_or_array
    stored = ts.Spec({"driver": "zarr", "kvstore": "memory://", "dtype": "uint16", "metadata": {"shape": [3]}})
    assert repr(make(stored, read)) == "LazyAwaitableArray(shape=(3,), dtype=bfloat16)"
    assert make(stored, read, dtype=np.int64).get().dtype == np.int64
    like = make(np.zeros(3, np.float32), read)
    np.testing.assert_array_equal(like.get(), np.arange(3, dtype=np.float32))
    assert like.get().dtype == np.float32
    lazy = checkpoint_importer.LazyThreadPoolArray((2,), np.float32, lambda: np.ones(2))
    assert lazy.executor is checkpoint_importer.LazyThreadPoolArray.executor


PROGRAM = f"""
import sys
sys.path.insert(0, {EMBEDDED_PATH!r})
import t5x
print(t5x.__version__, {{"jax", "numpy", "tensorflow", "gin"}} & set(sys.modules), "models" in dir(t5x))
from t5x import losses
print(losses.__name__, t5x.losses is losses)
import t5x.train, t5x.eval, t5x.infer, t5x.examples.t5.network
print([name for name in ("jax", "tensorflow", "seqio", "tensorboard") if name in sys.modules])
print(t5x.utils.seqio.ByteVocabulary().vocab_size, "tensorflow" in sys.modules)
"""


def test_importing_it_imports_nothing_heavy_and_its_modules_when_they_are_used() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{t5x.__version__} set() True", "t5x.losses True", "['jax']", "259 True"]


@pytest.mark.parametrize(
    ("function", "parameter", "expected"),
    [
        (train.train, "inference_evaluator_cls", seqio.Evaluator),
        (eval_lib.evaluate, "inference_evaluator_cls", seqio.Evaluator),
        (infer.write_inferences_to_file, "json_encoder_cls", seqio.TensorAndNumpyEncoder),
    ],
)
def test_defaults_are_seqios_classes(function: object, parameter: str, expected: type) -> None:
    default = inspect.signature(function).parameters[parameter].default  # type: ignore[arg-type]
    assert default == expected
    assert (repr(default), hash(default), default.__name__) == (repr(expected), hash(expected), expected.__name__)
    assert default != seqio.Task


def test_attributes_are_seqios_classes() -> None:
    assert models.EncoderDecoderModel.FEATURE_CONVERTER_CLS is seqio.EncDecFeatureConverter
    assert models.DecoderOnlyModel.FEATURE_CONVERTER_CLS is seqio.DecoderFeatureConverter
    assert utils.TensorBoardLogger is seqio.TensorBoardLogger
    with pytest.raises(AttributeError, match=r"module 't5x\.utils' has no attribute 'TensorBoard'"):
        utils.TensorBoard  # noqa: B018


def defined(path: Path) -> set[str]:
    """Returns the names that a file defines itself; imports do not count."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.ClassDef() | ast.FunctionDef():
                names.add(node.name)
            case ast.Assign():
                names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


@pytest.mark.parametrize("module", [module for module in API if ".examples." not in module])
def test_the_public_module_defines_what_t5x_defines_there(module: str) -> None:
    """The example networks are left out because they share their layers."""
    file = PACKAGE.parent / f"{module.replace('.', '/')}.py"
    assert sorted(set(API[module]) - defined(file)) == []


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("_[a-z]*.py")), ids=lambda path: path.stem)
def test_a_private_module_defines_nothing_public(path: Path) -> None:
    public = {name for module in API for name in API[module]}
    assert sorted(defined(path) & public) == []


def test_the_tables_of_the_page_are_what_the_embedded_t5x_has() -> None:
    made = fidelity.with_tables(PAGE, API)
    command = "python benchmarks/fidelity.py tests/reference/api.json docs/fidelity.md"
    assert made == PAGE, f"docs/fidelity.md is out of date; run: {command}"


def test_what_is_absent_or_different_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Model:
        def run(self, steps: int = 1) -> None: ...

    module = types.ModuleType("t5x.made_up")
    module.Model = Model
    module.train = lambda model, steps: None
    monkeypatch.setitem(__import__("sys").modules, "t5x.made_up", module)

    def signature(*names: str, **defaults: str) -> list[dict[str, str]]:
        return [{"name": name} for name in names] + [{"name": n, "default": text} for n, text in defaults.items()]

    record = {
        "Model": {"kind": "class", "members": {"run": signature("self", steps="2"), "stop": signature("self")}},
        "train": {"kind": "function", "signature": signature("model")},
        "evaluate": {"kind": "function", "signature": []},
    }
    assert fidelity.compare("t5x.made_up", record) == fidelity.Compared(
        3,
        ["evaluate"],
        [
            "Model: run: steps is 1 by default instead of 2",
            "Model: no member stop",
            "train: takes model, steps instead of model",
        ],
    )


def test_every_excused_test_has_a_reason() -> None:
    section = PAGE.partition("## T5X's own unit tests")[2]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    assert len(rows) > 2
    for name, reason in rows:
        assert re.fullmatch(r" `\w+(\.\w+)*`(, `\w+`)* ", name)
        assert len(reason.split()) > 5, name
