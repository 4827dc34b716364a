"""utils, gin_utils and config_utils offer T5X's names with T5X's parameters and defaults."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import pickle
import typing
from pathlib import Path
from typing import Any

import gin
import pytest
from t5x import checkpoints, utils

API: dict[str, Any] = json.loads((Path(__file__).parents[1] / "reference" / "api.json").read_text())
MODULES = ("t5x.utils", "t5x.gin_utils", "t5x.config_utils")
FUNCTIONS = [(m, n) for m in MODULES for n, what in API[m].items() if what["kind"] == "function"]
CLASSES = [(m, n) for m in MODULES for n, what in API[m].items() if what["kind"] == "class"]


def parameters(function: Any) -> list[dict[str, str]]:
    listed = []
    for parameter in inspect.signature(function).parameters.values():
        fact = {"kind": parameter.kind.name, "name": parameter.name}
        if parameter.default is not inspect.Parameter.empty:
            fact["default"] = "?.object" if parameter.default is gin.REQUIRED else repr(parameter.default)
        listed.append(fact)
    return listed


@pytest.mark.parametrize(("module", "name"), FUNCTIONS)
def test_function_has_the_recorded_signature(module: str, name: str) -> None:
    function = getattr(importlib.import_module(module), name)
    assert parameters(function) == API[module][name]["signature"]


@pytest.mark.parametrize(("module", "name"), CLASSES)
def test_class_has_the_recorded_members(module: str, name: str) -> None:
    cls = getattr(importlib.import_module(module), name)
    record = API[module][name]
    bases = [base.__name__ for base in cls.__bases__]
    if name == "ShardedDatasetIterator":  # clu's base imports TensorFlow, so it is registered when one is made
        bases = ["DatasetIterator" if base == "Iterator" else base for base in bases]
    assert bases == [base.rpartition(".")[2] for base in record["bases"]]
    for member, fact in record["members"].items():
        if fact == "property":
            assert isinstance(inspect.getattr_static(cls, member), property)
        else:
            assert parameters(getattr(cls, member)) == fact


@pytest.mark.parametrize("name", ["DatasetConfig", "SaveCheckpointConfig", "RestoreCheckpointConfig"])
def test_config_fields_come_in_the_recorded_order(name: str) -> None:
    # Positional arguments and gin's printed configs depend on it.
    constructor = API["t5x.utils"][name]["members"]["__init__"][1:]
    assert [field.name for field in dataclasses.fields(getattr(utils, name))] == [p["name"] for p in constructor]


def test_other_names_that_t5x_code_uses_are_there() -> None:
    assert utils.get_local_data is checkpoints.get_local_data
    for name in ("Array", "DType", "PartitionSpec", "PyTree", "Shape", "TensorBoardLogger", "InferStepCallable"):
        assert hasattr(utils, name)


def test_definitions_say_that_they_are_of_utils() -> None:
    assert repr(utils.DatasetConfig) == "<class 't5x.utils.DatasetConfig'>"
    assert pickle.loads(pickle.dumps(utils.get_dataset)) is utils.get_dataset


@pytest.mark.parametrize("cls", [utils.DatasetConfig, utils.SaveCheckpointConfig, utils.RestoreCheckpointConfig])
def test_type_hints_of_configs_resolve(cls: type) -> None:
    hints = typing.get_type_hints(cls)
    assert set(hints) == {field.name for field in dataclasses.fields(cls)}


def test_gin_binds_and_prints_names_of_utils() -> None:
    text = """
        from __gin__ import dynamic_registration
        from t5x import utils
        train/utils.DatasetConfig.batch_size = 4
        utils.create_learning_rate_scheduler.warmup_steps = 5
        utils.TrainStateInitializer.from_scratch.init_rng = 7
    """
    gin.clear_config()
    try:
        gin.parse_config(text)
        printed = gin.config_str()
    finally:
        gin.clear_config()
    assert "from t5x import utils\n" in printed
    assert "train/utils.DatasetConfig.batch_size = 4\n" in printed
    assert "utils.create_learning_rate_scheduler.warmup_steps = 5\n" in printed
    assert "utils.TrainStateInitializer.from_scratch.init_rng = 7\n" in printed


def test_gin_bindings_of_methods_reach_the_method() -> None:
    gin.clear_config()
    try:
        gin.parse_config(
            """
            from __gin__ import dynamic_registration
            from t5x import utils
            utils.ShardedDatasetIterator.save.filename = 'bound'
            utils.ShardedDatasetIterator.partitioner = None
            """
        )
        iterator = gin.get_configurable(utils.ShardedDatasetIterator)(Recorder(), global_shapes={})
        iterator.save()
    finally:
        gin.clear_config()
    assert iterator._iterator.saved == ["bound"]


class Recorder:
    def __init__(self) -> None:
        self.saved: list[str] = []

    def save(self, filename: str) -> None:
        self.saved.append(filename)
