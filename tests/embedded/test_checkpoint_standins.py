"""Generated checkpoints have the layouts of real ones, and can be restored wherever T5X restores those."""

import functools
import types
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from flax import serialization
from small_states import assert_same, factoring_adafactor, flat, partitioner, shapes, state
from t5x import checkpoints, optimizers, state_utils, train_state

from t5x_harness.execute.starting_checkpoint import write_standin
from t5x_harness.plan.stored_tree import read_tree
from t5x_harness.standins.checkpoints import CheckpointKind, kind_at
from t5x_harness.variables import ROOT_VARIABLE

STEP = 1_000_000
RECORDED = Path(__file__).parent / "t5x_legacy_checkpoints" / "checkpoint_3"
OLDER = (CheckpointKind.LEGACY, CheckpointKind.PUBLISHED)


def write(folder: Any, kind: CheckpointKind, like: Any = None) -> str:
    initializer = types.SimpleNamespace(global_train_state_shape=shapes(state() if like is None else like))
    return str(write_standin(folder, STEP, types.SimpleNamespace(initializer=initializer), partitioner(), kind=kind))


def inference_state() -> Any:
    """Returns the state that evaluation and inference restore."""
    trained = state()
    return train_state.InferenceState(trained.step, trained.params, trained.params_axes)


def by_legacy_checkpointer(path: str, like: Any, **how: Any) -> Any:
    return checkpoints.Checkpointer(shapes(like), partitioner(), "").restore(path=path, **how)


def by_orbax_manager(path: str, like: Any, directory: str | None = None, **how: Any) -> Any:
    """Restores as in training, where the manager has MODEL_DIR, or as in evaluation, where it has the checkpoint."""
    manager = checkpoints.OrbaxCheckpointManagerInterface(directory or path, shapes(like), partitioner())
    restored = manager.restore(path=path, **how)
    manager.close()
    return restored


@pytest.mark.parametrize(
    ("path", "use_orbax", "kind"),
    [
        ("gs://t5-data/pretrained_models/t5x/t5_1_1_small/checkpoint_1000000", True, CheckpointKind.PUBLISHED),
        ("gs://t5-data/pretrained_models/t5x/t5_1_1_small/checkpoint_1000000", False, CheckpointKind.PUBLISHED),
        ("/gcs/t5-data/pretrained_models/t5x/umt5/base/checkpoint_1000000/", True, CheckpointKind.PUBLISHED),
        ("gs://t5-data/pretrained_models/t5x/t5_1_1_small", True, CheckpointKind.PUBLISHED),
        ("gs://t5-data/t5-data/pretrained_models/t5x/umt5_base/checkpoint_1000000", True, CheckpointKind.PUBLISHED),
        ("gs://scenic-bucket/ul2/ul220b/checkpoint_2650000", True, CheckpointKind.PUBLISHED),
        ("gs://my-bucket/t5-data/pretrained_models/checkpoint_1", True, CheckpointKind.ORBAX),
        ("gs://my-bucket/model/checkpoint_1000", True, CheckpointKind.ORBAX),
        ("gs://my-bucket/model/checkpoint_1000", False, CheckpointKind.LEGACY),
        ("/models/checkpoint_1000", False, CheckpointKind.LEGACY),
    ],
)
def test_the_path_and_the_config_tell_the_kind(path: str, use_orbax: bool, kind: CheckpointKind) -> None:
    assert kind_at(path, use_orbax=use_orbax) is kind


@pytest.mark.parametrize("kind", OLDER)
def test_the_older_layout_is_the_recorded_one(kind: CheckpointKind, tmp_path: Path) -> None:
    path = Path(write(tmp_path, kind))
    assert path == tmp_path / "checkpoint_1000000"
    assert {p.name for p in path.iterdir()} == {p.name for p in RECORDED.iterdir()}
    ours, theirs = (serialization.msgpack_restore((p / "checkpoint").read_bytes()) for p in (path, RECORDED))
    assert ours["version"] == theirs["version"]
    ours, theirs = (state_utils.flatten_state_dict(tree["optimizer"]) for tree in (ours, theirs))
    assert ours.keys() == theirs.keys()
    for name, leaf in theirs.items():
        if isinstance(leaf, dict):
            assert ours[name] == leaf
        else:
            assert (ours[name].shape, ours[name].dtype) == (leaf.shape, leaf.dtype)
    assert ours["state/step"] == STEP


@pytest.mark.parametrize("kind", CheckpointKind)
def test_training_restores_it(kind: CheckpointKind, tmp_path: Path) -> None:
    path = write(tmp_path, kind)
    restored = by_orbax_manager(path, state(), str(tmp_path))
    assert int(restored.step) == STEP
    assert {leaf.dtype for leaf in jax.tree.leaves(restored.params)} == {np.dtype(np.float32)}
    kernel = np.asarray(restored.params["enc"]["kernel"])
    assert 0 < np.abs(kernel).max() < 1
    np.testing.assert_array_equal(restored.params["scale"], np.ones(4))
    assert not any(leaf.any() for leaf in flat(restored.state_dict()["state"]["param_states"]).values())


@pytest.mark.parametrize("kind", OLDER)
def test_every_reader_of_the_older_layout_gets_the_same(kind: CheckpointKind, tmp_path: Path) -> None:
    path = write(tmp_path, kind)
    whole = checkpoints.load_t5x_checkpoint(path)
    for restored in (
        by_legacy_checkpointer(path, state()),
        by_legacy_checkpointer(f"{path}/", state()),
        by_orbax_manager(path, state(), str(tmp_path)),
        by_orbax_manager(path, state()),
    ):
        assert_same(restored.state_dict(), whole)
    for restored in (by_legacy_checkpointer(path, inference_state()), by_orbax_manager(path, inference_state())):
        assert_same(restored.state_dict()["target"], whole["target"])
        assert int(restored.step) == STEP


def test_both_layouts_hold_the_same_values(tmp_path: Path) -> None:
    restored = [by_orbax_manager(write(tmp_path / kind.value, kind), state()) for kind in CheckpointKind]
    for other in restored[1:]:
        assert_same(other.state_dict(), restored[0].state_dict())


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_a_published_model_holds_the_state_of_adafactor(tmp_path: Path) -> None:
    """This holds for any optimizer of the config: one that needs other state does not find it, as in a job."""
    adam = state(optimizer=optimizers.adamw(0.1))
    path = write(tmp_path, CheckpointKind.PUBLISHED, adam)
    stored = read_tree(path)
    assert stored is not None
    assert {name for name in stored.arrays if "param_states" in name} == {
        f"state/param_states/{parameter}/{moment}"
        for parameter in ("enc/kernel", "scale")
        for moment in ("m", "v", "v_row", "v_col")
    }
    with pytest.raises(ValueError, match=r"lacks 5 of the model's leaves:\n  state/param_states/0/count"):
        by_orbax_manager(path, adam)
    without = functools.partial(state_utils.apply_assignment_map, assignment_map=[(".*param_states.*", None)])
    restored = by_orbax_manager(path, adam, state_transformation_fns=[without], fallback_state=adam.state_dict())
    assert int(restored.step) == STEP
    by_itself = state(optimizer=factoring_adafactor())
    assert_same(restored.params, by_orbax_manager(path, inference_state()).params)
    assert by_orbax_manager(write(tmp_path / "own", CheckpointKind.PUBLISHED, by_itself), by_itself)


def test_the_configs_own_optimizer_is_in_its_own_checkpoints(tmp_path: Path) -> None:
    adam = state(optimizer=optimizers.adamw(0.1))
    for kind in (CheckpointKind.LEGACY, CheckpointKind.ORBAX):
        assert int(by_orbax_manager(write(tmp_path / kind.value, kind, adam), adam).step) == STEP


def test_in_a_bucket_it_is_put_on_the_disk_of_the_private_google(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the specs that T5X writes into buckets, and the marker files that keep orbax from removing it."""
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    address = write("gs://t5-data/pretrained_models/t5x/small", CheckpointKind.PUBLISHED)
    assert address == "gs://t5-data/pretrained_models/t5x/small/checkpoint_1000000"
    local = tmp_path / "buckets/t5-data/pretrained_models/t5x/small/checkpoint_1000000"
    tree = serialization.msgpack_restore((local / "checkpoint").read_bytes())["optimizer"]
    assert tree["target"]["scale"]["kvstore"] == {
        "bucket": "t5x-dummy-bucket", "driver": "gcs", "path": "target.scale/"
    }  # fmt: skip
    assert all((folder / "commit_success.txt").exists() for folder in (local, *local.iterdir()) if folder.is_dir())
    assert_same(by_orbax_manager(str(local), state()).state_dict(), checkpoints.load_t5x_checkpoint(str(local)))
