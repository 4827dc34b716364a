"""The harness's changes of T5X, in a T5X that has the names to change and in a fork that lacks them."""

import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from t5x_harness.slices.slice import get_slice
from t5x_harness.system.after_import import AfterImport
from t5x_harness.upstream.t5x import (
    MESH_FUNCTIONS,
    T5XLacks,
    before_finalizing,
    before_restoring,
    install_mesh,
    report_steps,
    watch_batches,
)


def module(name: str, **names: Any) -> types.ModuleType:
    made = types.ModuleType(name)
    made.__file__ = "/fork/t5x/module.py"
    vars(made).update(names)
    return made


@pytest.fixture
def in_use(monkeypatch: pytest.MonkeyPatch) -> Callable[[types.ModuleType], None]:
    """Makes a module the imported ``t5x.partitioning``, for which no callback stays behind."""
    others = [finder for finder in sys.meta_path if not isinstance(finder, AfterImport)]
    monkeypatch.setattr(sys, "meta_path", others)
    return lambda partitioning: monkeypatch.setitem(sys.modules, "t5x.partitioning", partitioning)


def test_a_fork_without_a_mesh_function_is_refused_by_its_name_and_place(in_use: Any) -> None:
    for missing in MESH_FUNCTIONS:
        in_use(module("t5x.partitioning", **{name: print for name in MESH_FUNCTIONS if name != missing}))
        with pytest.raises(T5XLacks) as refused:
            install_mesh(get_slice("v3-8"))
        assert str(refused.value) == (
            f"the T5X in use (/fork/t5x/module.py) has no t5x.partitioning.{missing}, through which the harness has "
            "T5X build the mesh of a TPU slice"
        )


def test_a_slice_takes_the_place_of_the_one_before(in_use: Any) -> None:
    pytest.importorskip("jax")
    program = (
        "import jax\ndef get_mesh(): return jax.device_count()\ndefault_mesh = with_sharding_constraint = get_mesh"
    )
    partitioning = module("t5x.partitioning")
    exec(program, vars(partitioning))
    original = partitioning.get_mesh
    in_use(partitioning)
    for name in ("v3-8", "v2-32"):
        install_mesh(get_slice(name))
        assert partitioning.get_mesh() == get_slice(name).num_devices
        assert partitioning.get_mesh.__wrapped__ is original


def test_a_fork_that_restores_otherwise_is_refused() -> None:
    with pytest.raises(T5XLacks, match=r"has no t5x\.utils\.create_checkpoint_manager_and_restore, through which"):
        before_restoring(module("t5x.utils"), lambda path, arguments: None)


def test_batches_are_watched_as_the_loop_draws_them() -> None:
    class Trainer:
        def train(self, batch_iter: Iterator[int], num_steps: int) -> int:
            return sum(next(batch_iter) for _ in range(num_steps))

    drawn: list[int | str] = []
    trainer = Trainer()
    assert watch_batches(trainer, drawn.append, lambda: drawn.append("next"))
    assert trainer.train(iter([3, 4, 5]), num_steps=2) == 7
    assert drawn == ["next", 3, "next", 4]
    assert not watch_batches(object(), drawn.append)  # as in a fork whose loop has another name


def test_a_parsed_config_is_changed_before_it_is_locked() -> None:
    gin = pytest.importorskip("gin")
    happened: list[str] = []

    def parse_gin_flags(files: list[str], finalize_config: bool = True) -> None:
        happened.append(f"parsed {files[0]}, {finalize_config}")

    gin_utils = module("t5x.gin_utils", parse_gin_flags=parse_gin_flags)
    gin.clear_config()
    try:
        before_finalizing(gin_utils, lambda: happened.append(f"changed, locked: {gin.config_is_locked()}"))
        gin_utils.parse_gin_flags(["a.gin"], finalize_config=False)
        assert (happened, gin.config_is_locked()) == (["parsed a.gin, False"], False)
        gin_utils.parse_gin_flags(files=["b.gin"])
        assert happened[1:] == ["parsed b.gin, False", "changed, locked: False"]
        assert gin.config_is_locked()
    finally:
        gin.clear_config()


def test_train_loops_report_their_steps() -> None:
    class BaseTrainer:
        def train(self, batch_iter: Iterator[Any], num_steps: int, start_step: int | None = None) -> list[Any]:
            first = start_step or 0
            return [next(batch_iter) for _ in range(first, first + num_steps)]

    class Own(BaseTrainer):
        pass

    steps: list[int] = []
    report_steps(module("t5x.trainer", BaseTrainer=BaseTrainer), steps.append)
    assert Own().train(iter("abc"), 2, start_step=6) == ["a", "b"]
    assert Own().train(iter("abc"), num_steps=1) == ["a"]
    assert steps == [7, 8, 1]
    report_steps(module("t5x.trainer"), steps.append)  # as in a fork without such a loop
