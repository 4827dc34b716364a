"""The modules of a run's state offer T5X's names with T5X's parameters, defaults and bases."""

from __future__ import annotations

import importlib
import inspect
import json
import pickle
from pathlib import Path
from typing import Any

import gin
import pytest
from t5x import checkpoints, partitioning

API: dict[str, Any] = json.loads((Path(__file__).parents[1] / "reference" / "api.json").read_text())
MODULES = (
    "t5x.train_state",
    "t5x.optimizers",
    "t5x.adafactor",
    "t5x.state_utils",
    "t5x.partitioning",
    "t5x.checkpoints",
    "t5x.checkpoint_utils",
)
FUNCTIONS = [(m, n) for m in MODULES for n, what in API[m].items() if what["kind"] == "function"]
CLASSES = [(m, n) for m in MODULES for n, what in API[m].items() if what["kind"] == "class"]


def parameters(function: Any) -> list[dict[str, str]]:
    listed = []
    for parameter in inspect.signature(function).parameters.values():
        fact = {"kind": parameter.kind.name, "name": parameter.name}
        if parameter.default is not inspect.Parameter.empty:
            fact["default"] = repr(parameter.default)
        listed.append(fact)
    return listed


@pytest.mark.parametrize(("module", "name"), FUNCTIONS)
def test_function_has_the_recorded_signature_and_home(module: str, name: str) -> None:
    function = getattr(importlib.import_module(module), name)
    assert parameters(function) == API[module][name]["signature"]
    assert function.__module__ == module


@pytest.mark.parametrize(("module", "name"), CLASSES)
def test_class_has_the_recorded_members_and_home(module: str, name: str) -> None:
    cls = getattr(importlib.import_module(module), name)
    record = API[module][name]
    assert [base.__name__ for base in cls.__bases__] == [base.rpartition(".")[2] for base in record["bases"]]
    assert cls.__module__ == module
    for member, fact in record["members"].items():
        if fact == "property":
            assert isinstance(inspect.getattr_static(cls, member), property)
        else:
            assert parameters(getattr(cls, member)) == fact


def test_what_private_modules_define_can_be_pickled() -> None:
    layout = partitioning.DataLayout(batch_size=8, shard_id=0, num_shards=1, is_first_host_in_replica_set=True)
    assert pickle.loads(pickle.dumps(layout)) == layout


def test_gin_binds_arguments_of_every_configurable() -> None:
    config = """
from __gin__ import dynamic_registration
from t5x import adafactor
from t5x import checkpoints
from t5x import optimizers
from t5x import partitioning
adafactor.Adafactor.decay_rate = 0.5
optimizers.adamw.learning_rate = 0.25
partitioning.PjitPartitioner.num_partitions = 1
checkpoints.SaveBestCheckpointer.metric_mode = 'min'
"""
    with gin.unlock_config():
        try:
            gin.parse_config(config)
            assert gin.get_configurable("adafactor.Adafactor")().hyper_params.decay_rate == 0.5
            partitioner = gin.get_configurable("partitioning.PjitPartitioner")()
            assert partitioner._num_partitions == 1
            assert gin.query_parameter("checkpoints.SaveBestCheckpointer.metric_mode") == "min"
            assert checkpoints.SaveBestCheckpointer.__name__ == "SaveBestCheckpointer"
        finally:
            gin.clear_config()
