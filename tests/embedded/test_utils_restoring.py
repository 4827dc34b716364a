"""The right checkpoint is found and read with the settings of its config. Gaps are filled only if requested."""

import functools
import re
import types
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from t5x import checkpoints, utils


def test_dtypes_to_save_and_restore_in() -> None:
    for dtype in (None, "float32", "bfloat16"):
        assert utils.SaveCheckpointConfig(dtype=dtype).dtype == dtype
    for dtype in (None, "float32", "bfloat16", "float16"):
        assert utils.RestoreCheckpointConfig(path="x", dtype=dtype).dtype == dtype


def test_assignment_map_becomes_the_first_transformation() -> None:
    def other(state, target):
        return state

    cfg = utils.RestoreCheckpointConfig(path="x", assignment_map=[(r"(.*)", r"\1")], state_transformation_fns=[other])
    renaming, last = cfg.state_transformation_fns
    assert renaming.keywords == {"assignment_map": [(r"(.*)", r"\1")]}
    assert last is other


STATE_SHAPE = object()
PARTITIONER = object()


class FakeCheckpointer:
    """A checkpointer that records its settings and returns the arguments of each call."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.saved: list[Any] = []

    def restore(self, path: str, state_transformation_fns: Any = (), fallback_state: Any = None, **kwargs: Any) -> Any:
        return types.SimpleNamespace(
            path=path, fns=state_transformation_fns, fallback=fallback_state, settings=self.settings
        )

    def restore_from_tf_checkpoint(self, path: str, strict: bool = True) -> Any:
        return types.SimpleNamespace(path=path, tensorflow=True, strict=strict)

    def save(self, state: Any, fns: Any, concurrent_gb: int) -> None:
        self.saved.append((state, fns, concurrent_gb))


def identity(state: Any, target: Any, **kwargs: Any) -> Any:
    return state


def restore_cfg(path: Any, **changes: Any) -> utils.RestoreCheckpointConfig:
    return utils.RestoreCheckpointConfig(path, checkpointer_cls=FakeCheckpointer, **changes)


def save_cfg(**changes: Any) -> utils.SaveCheckpointConfig:
    return utils.SaveCheckpointConfig(checkpointer_cls=FakeCheckpointer, **changes)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for step in (2, 10, 9):
        checkpoint = tmp_path / "run" / f"checkpoint_{step}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "checkpoint").write_text("")
    (tmp_path / "empty").mkdir()
    return tmp_path


class TestFinding:
    def test_latest_is_the_highest_step(self, folder: Path) -> None:
        cfg = restore_cfg(str(folder / "run"))
        assert utils.get_first_valid_restore_config_and_paths([cfg]) == (cfg, [str(folder / "run/checkpoint_10")])

    def test_all_come_ascending(self, folder: Path) -> None:
        _, paths = utils.get_first_valid_restore_config_and_paths([restore_cfg(str(folder / "run"), mode="all")])
        assert [Path(path).name for path in paths] == ["checkpoint_2", "checkpoint_9", "checkpoint_10"]

    def test_empty_folders_are_passed_over(self, folder: Path) -> None:
        second = restore_cfg([str(folder / "empty"), str(folder / "run")])
        found = utils.get_first_valid_restore_config_and_paths([restore_cfg(str(folder / "empty")), second])
        assert found == (second, [str(folder / "run/checkpoint_10")])
        assert utils.get_first_valid_restore_config_and_paths([restore_cfg(str(folder / "empty"))]) == (None, [])

    def test_specific_is_taken_unseen(self) -> None:
        cfg = restore_cfg("somewhere/checkpoint_5", mode="specific")
        assert utils.get_first_valid_restore_config_and_paths([cfg]) == (cfg, ["somewhere/checkpoint_5"])

    def test_tensorflow_folders_are_understood(self, tmp_path: Path) -> None:
        (tmp_path / "checkpoint").write_text(
            'model_checkpoint_path: "model.ckpt-7"\n'
            'all_model_checkpoint_paths: "model.ckpt-3"\nall_model_checkpoint_paths: "model.ckpt-7"\n'
        )
        _, paths = utils.get_first_valid_restore_config_and_paths([restore_cfg(str(tmp_path))])
        assert paths == [str(tmp_path / "model.ckpt-7")]


class TestFallback:
    def test_is_only_made_where_asked(self) -> None:
        assert utils.get_fallback_state(None, lambda rng: {"made": rng}, 7) is None
        assert utils.get_fallback_state(restore_cfg("x"), lambda rng: {"made": rng}, 7) is None
        wanted = restore_cfg("x", fallback_to_scratch=True, assignment_map=[("a", "b")])
        assert utils.get_fallback_state(wanted, lambda rng: {"made": rng}, 7) == {"made": 7}


def manager(**changes: Any) -> utils.LegacyCheckpointManager:
    settings = {"save_cfg": None, "restore_cfg": None, "ds_iter": "iterator", "model_dir": "runs/1"} | changes
    return utils.LegacyCheckpointManager(train_state_shape=STATE_SHAPE, partitioner=PARTITIONER, **settings)


class TestLegacyManager:
    def test_saver_is_made_as_configured(self) -> None:
        made = manager(save_cfg=save_cfg(dtype="bfloat16", keep=3, keep_dataset_checkpoints=2, save_dataset=True))
        made.save("state", ["fn"])
        made.wait_until_finished()
        made.close()
        saver = made._checkpointer._save_checkpointer
        assert saver.saved == [("state", ["fn"], 128)]
        assert saver.settings == {
            "train_state": STATE_SHAPE,
            "partitioner": PARTITIONER,
            "checkpoints_dir": "runs/1",
            "dataset_iterator": "iterator",
            "save_dtype": "bfloat16",
            "keep": 3,
            "keep_dataset_checkpoints": 2,
        }

    def test_restorer_is_made_as_configured(self) -> None:
        cfg = restore_cfg("x", dtype="bfloat16", state_transformation_fns=[identity])
        restored = manager(restore_cfg=cfg).restore(["x/checkpoint_1"], cfg, fallback_state={"a": 1})
        assert (restored.path, restored.fns, restored.fallback) == ("x/checkpoint_1", [identity], {"a": 1})
        assert restored.settings == {
            "train_state": STATE_SHAPE,
            "partitioner": PARTITIONER,
            "checkpoints_dir": "",
            "dataset_iterator": None,
            "restore_dtype": jnp.bfloat16,
        }

    def test_several_paths_give_several_states(self) -> None:
        cfg = restore_cfg("x", restore_dataset=True)
        made = manager(restore_cfg=cfg)
        assert [state.path for state in made.restore(["a", "b"], cfg)] == ["a", "b"]
        assert made.restore(["a"], cfg).settings["dataset_iterator"] == "iterator"
        assert made.restore(None, cfg) is None
        assert made.restore(["a"], None) is None

    @pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
    def test_tensorflow_checkpoints_are_told_by_their_index(self, tmp_path: Path) -> None:
        (tmp_path / "model.ckpt-7.index").write_text("")
        path = str(tmp_path / "model.ckpt-7")
        cfg = restore_cfg(path, strict=False)
        restored = manager(restore_cfg=cfg).restore([path], cfg)
        assert (restored.path, restored.tensorflow, restored.strict) == (path, True, False)
        changed = restore_cfg(path, state_transformation_fns=[identity])
        with pytest.raises(ValueError, match=r"model\.ckpt-7 is a TensorFlow checkpoint, to which"):
            manager(restore_cfg=changed).restore([path], changed)


class FakeManager:
    def __init__(self, **settings: Any) -> None:
        self.settings = settings

    def restore(self, path: str, **kwargs: Any) -> Any:
        return path, kwargs


def orbax_manager(**cfgs: Any) -> Any:
    return utils.create_orbax_checkpoint_manager(
        train_state=STATE_SHAPE, partitioner=PARTITIONER, ds_iter="iterator", model_dir="runs/1", **cfgs
    )


class TestOrbaxManager:
    def test_settings_of_both_configs_meet(self) -> None:
        made = orbax_manager(
            save_cfg=save_cfg(checkpoint_manager_cls=FakeManager, keep=5, period=2, dtype="float32"),
            restore_cfg=restore_cfg("x", checkpoint_manager_cls=FakeManager, dtype="bfloat16", restore_dataset=True),
        )
        assert made.settings == {
            "directory": "runs/1",
            "train_state": STATE_SHAPE,
            "partitioner": PARTITIONER,
            "dataset_iterator": "iterator",
            "save_dtype": "float32",
            "restore_dtype": "bfloat16",
            "keep": 5,
            "period": 2,
        }

    def test_one_config_is_enough(self) -> None:
        made = orbax_manager(restore_cfg=restore_cfg("x", checkpoint_manager_cls=FakeManager))
        assert {key: made.settings[key] for key in ("dataset_iterator", "save_dtype", "keep", "period")} == {
            "dataset_iterator": None,
            "save_dtype": None,
            "keep": None,
            "period": None,
        }

    def test_ranking_of_a_partial_checkpointer_is_passed_on(self) -> None:
        ranked = functools.partial(checkpoints.SaveBestCheckpointer, metric_name_to_monitor="loss", metric_mode="min")
        cfg = utils.SaveCheckpointConfig(checkpointer_cls=ranked, checkpoint_manager_cls=FakeManager)
        settings = orbax_manager(save_cfg=cfg).settings
        ranking = {key: value for key, value in settings.items() if "metric" in key or key == "force_keep_period"}
        assert ranking == {
            "metric_name_to_monitor": "loss",
            "metric_mode": "min",
            "keep_checkpoints_without_metrics": True,
            "force_keep_period": None,
        }

    def test_ranking_of_a_class_is_not_as_in_t5x(self) -> None:
        cfg = utils.SaveCheckpointConfig(
            checkpointer_cls=checkpoints.SaveBestCheckpointer, checkpoint_manager_cls=FakeManager
        )
        assert "metric_mode" not in orbax_manager(save_cfg=cfg).settings


class TestCreateAndRestore:
    class Initializer:
        global_train_state_shape = STATE_SHAPE

        @staticmethod
        def from_scratch(rng: Any) -> Any:
            return types.SimpleNamespace(state_dict=lambda: {"from": rng})

    def create(self, cfg: Any, path: Any, rng: Any = None, **kwargs: Any) -> Any:
        return utils.create_checkpoint_manager_and_restore(
            self.Initializer, PARTITIONER, cfg, path, rng, model_dir="runs/1", **kwargs
        )

    def test_restores_with_the_fallback(self) -> None:
        cfg = restore_cfg("x", fallback_to_scratch=True, state_transformation_fns=[identity])
        state, made = self.create(cfg, "x/checkpoint_1", rng=7)
        assert isinstance(made, utils.LegacyCheckpointManager)
        assert (state.path, state.fallback) == ("x/checkpoint_1", {"from": 7})

    def test_nothing_to_restore_is_fine(self) -> None:
        state, made = self.create(None, None, save_checkpoint_cfg=save_cfg())
        assert state is None
        assert made._checkpointer._save_checkpointer.settings["checkpoints_dir"] == "runs/1"

    @pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
    def test_orbax_on_request(self) -> None:
        cfg = restore_cfg("x", checkpoint_manager_cls=FakeManager)
        (path, kwargs), made = self.create(cfg, "x/checkpoint_1", use_orbax=True)
        assert isinstance(made, FakeManager)
        assert (path, kwargs) == ("x/checkpoint_1", {"state_transformation_fns": (), "fallback_state": None})

    @pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
    @pytest.mark.parametrize("path", [None, "", ["a", "b"]])
    def test_a_config_without_one_path_is_refused(self, path: Any) -> None:
        with pytest.raises(ValueError, match=r"Expected one checkpoint to restore, but .*: name one, or leave"):
            self.create(restore_cfg("x", mode="specific"), path)


def test_restore_through_orbax_takes_several_paths() -> None:
    cfg = restore_cfg("x")
    assert [path for path, _ in utils.restore(FakeManager(), ["a", "b"], cfg)] == ["a", "b"]
    assert utils.restore(FakeManager(), ["a"], cfg, {"f": 1})[1]["fallback_state"] == {"f": 1}
    assert utils.restore(FakeManager(), None, cfg) is None


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: utils.SaveCheckpointConfig(dtype="float16"),
            "`SaveCheckpointConfig.dtype` must be one of None, 'float32', 'bfloat16'; got 'float16'.",
        ),
        (
            lambda: utils.RestoreCheckpointConfig(path="x", dtype="int8"),
            "`RestoreCheckpointConfig.dtype` must be one of None, 'float32', 'bfloat16', 'float16'; got 'int8'.",
        ),
        (
            lambda: utils.RestoreCheckpointConfig(path="x", mode="newest"),
            "`RestoreCheckpointConfig.mode` must be one of 'specific', 'latest', 'all'; got 'newest'.",
        ),
        (
            lambda: utils.get_first_valid_restore_config_and_paths([restore_cfg("nowhere")]),
            "`RestoreCheckpointConfig.path` must be a directory with mode 'latest', but 'nowhere' is not: name the "
            "folder that holds the checkpoints, or set mode to 'specific' to name one of them.",
        ),
        (
            lambda: utils.get_fallback_state(restore_cfg("x", fallback_to_scratch=True), dict, 7),
            "needs `state_transformation_fns` or an `assignment_map`: without one every",
        ),
        (
            lambda: utils.get_fallback_state(
                restore_cfg("x", fallback_to_scratch=True, assignment_map=[("a", "b")]), dict, None
            ),
            "needs an `init_rng` to initialize parameters with",
        ),
        (lambda: manager().save("state"), "this run has no `SaveCheckpointConfig` (CheckpointConfig.save)"),
        (
            lambda: manager(save_cfg=save_cfg(save_dataset=True), ds_iter=None),
            "there is no dataset iterator to save",
        ),
        (
            lambda: orbax_manager(
                save_cfg=save_cfg(), restore_cfg=restore_cfg("x", checkpoint_manager_cls=FakeManager)
            ),
            "`checkpoint_manager_cls` must be the same in `SaveCheckpointConfig` and `RestoreCheckpointConfig`; got "
            "FakeManager and OrbaxCheckpointManagerInterface.",
        ),
    ],
)
def test_what_cannot_be_is_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
