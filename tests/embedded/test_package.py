"""The package itself: what it offers at once, what is imported when it is used, and what is not there."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import t5x
import tensorstore as ts
from t5x import (
    _absent,
    adafactor,
    checkpoint_importer,
    checkpoints,
    decoding,
    models,
    optimizers,
    partitioning,
    train_state,
    trainer,
)

EMBEDDED = Path(t5x.__file__).parents[1]


def test_importing_it_imports_nothing_heavy_and_its_modules_when_they_are_used() -> None:
    program = (
        "import sys, t5x; heavy = {'jax', 'numpy', 'tensorflow', 'gin'};"
        "print(t5x.__version__, sorted(heavy & set(sys.modules)), 'models' in dir(t5x));"
        "from t5x import losses; print(losses.__name__, t5x.losses is losses)"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=EMBEDDED, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == [f"{t5x.__version__} [] True", "t5x.losses True"]


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


def test_every_public_name_of_t5x_is_there_or_says_what_there_is_instead() -> None:
    api = json.loads((Path(__file__).parents[1] / "reference" / "api.json").read_text())
    for name, symbols in api.items():
        module = importlib.import_module(name)
        assert [symbol for symbol in symbols if not hasattr(module, symbol)] == [], name
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
