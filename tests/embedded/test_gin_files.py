"""Every Gin file of the embedded runtime binds what T5X's file of that name binds, in the same order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gin import config_parser

TESTS = Path(__file__).parents[1]
EMBEDDED = TESTS.parent / "t5x_harness" / "embedded"
RECORD: dict[str, dict[str, Any]] = json.loads((TESTS / "reference" / "gin_files.json").read_text())
OURS = sorted(str(path.relative_to(EMBEDDED)) for path in EMBEDDED.rglob("*.gin"))


class _AsRecorded(config_parser.ParserDelegate):
    def configurable_reference(self, scoped_configurable_name: str, evaluate: bool) -> str:
        return f"@{scoped_configurable_name}{'()' if evaluate else ''}"

    def macro(self, macro_name: str) -> str:
        return f"%{macro_name}"


def parse(path: Path) -> list[Any]:
    with path.open() as file:
        return list(config_parser.ConfigParser(file, _AsRecorded()))


def facts(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"bindings": [], "imports": [], "includes": []}
    for statement in parse(path):
        match statement:
            case config_parser.ImportStatement():
                found["imports"].append(statement.format())
            case config_parser.IncludeStatement():
                found["includes"].append(statement.filename)
            case config_parser.BindingStatement(scope=scope, selector=selector, arg_name=arg):
                name = f"{scope}/{selector}" if scope else selector
                found["bindings"].append([f"{name}.{arg}" if arg else name, statement.value])
    return found


@pytest.mark.parametrize("name", OURS)
def test_file_binds_what_t5x_binds(name: str) -> None:
    assert name in RECORD, "no T5X file of that name is on record"
    ours = json.loads(json.dumps(facts(EMBEDDED / name)))  # as recorded: tuples as lists
    assert ours == RECORD[name]


def test_all_files_of_t5x_are_there() -> None:
    assert sorted(RECORD) == OURS


@pytest.mark.parametrize("name", OURS)
def test_folder_is_a_package_so_that_includes_resolve(name: str) -> None:
    # Gin's resource reader dies with a TypeError on folders that are not.
    assert (EMBEDDED / name).parent.joinpath("__init__.py").is_file()


def test_includes_name_files_that_are_there() -> None:
    missing = {
        (name, included)
        for name in OURS
        for included in facts(EMBEDDED / name)["includes"]
        if not (EMBEDDED / included).is_file()
    }
    # T5X never published this one, which umT5's pre-training includes.
    assert missing == {
        ("t5x/examples/scalable_t5/umt5/runs/pretraining_common.gin", "t5x/configs/runs/pretrain_deterministic.gin")
    }


@pytest.mark.parametrize(
    ("name", "binding", "value"),
    [
        ("t5_1_1/base.gin", "network.T5Config.mlp_activations", ("gelu", "linear")),
        ("t5_1_0/base.gin", "network.T5Config.mlp_activations", ("relu",)),
        ("byt5/base.gin", "network.T5Config.mlp_activations", ("gelu", "linear")),
        (
            "t5_1_1/examples/base_wmt19_ende_train.gin",
            "partitioning.PjitPartitioner.model_parallel_submesh",
            (1, 1, 1, 2),
        ),
    ],
)
def test_tuples_stay_tuples(name: str, binding: str, value: tuple[Any, ...]) -> None:
    # JSON records them as lists, but dataclasses that jax hashes need tuples.
    assert dict(facts(EMBEDDED / "t5x/examples/t5" / name)["bindings"])[binding] == value


@pytest.mark.parametrize("name", OURS)
def test_file_says_what_it_is_for_and_imports_first(name: str) -> None:
    assert (EMBEDDED / name).read_text().startswith("# ")
    kinds = [type(statement).__name__ for statement in parse(EMBEDDED / name)]
    if "ImportStatement" in kinds and "small_c4_pretrain" not in name:  # there the import follows the includes
        assert kinds[0] == "ImportStatement"
