"""A checkpoint's tree, read from its metadata in each layout, against the model's."""

import functools
import shutil
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flax import serialization

from t5x_harness.plan.checkpoint_fit import CheckpointFit, compare
from t5x_harness.plan.checkpoint_source import StartPoint, checkpoint_steps
from t5x_harness.plan.rules.restored import other_tree
from t5x_harness.plan.stored_tree import StoredArray, StoredLayout, StoredTree, read_tree, unreadable
from t5x_harness.standins.checkpoints import write_legacy_checkpoint
from t5x_harness.variables import ROOT_VARIABLE, SOURCE_VARIABLE

ORBAX = Path(__file__).parents[1] / "reference/checkpoint_8"
OLDER = Path(__file__).parents[1] / "embedded/t5x_legacy_checkpoints/checkpoint_3"
EMBEDDING = "target/token_embedder/embedding"


def test_orbax_layout() -> None:
    tree = read_tree(str(ORBAX))
    assert tree.layout is StoredLayout.ORBAX
    assert len(tree.arrays) == 261
    assert tree.arrays[EMBEDDING] == StoredArray((384, 16), "float32")
    assert tree.arrays["state/step"] == StoredArray((), "int32")
    assert {array.dtype for name, array in tree.arrays.items() if name.startswith("target/")} == {"float32"}


def test_older_layout() -> None:
    tree = read_tree(str(OLDER))
    assert tree.layout is StoredLayout.T5X
    assert tree.arrays["target/enc/kernel"].shape == (8, 4)
    assert "state/param_states/scale/v" in tree.arrays


def test_older_layout_with_the_specs_of_early_versions(tmp_path: Path) -> None:
    """These specs have the path next to the storage, types in zarr's notation, and the storage of Google's own jobs."""
    early = {
        "driver": "zarr",
        "path": "target.scale",
        "kvstore": {"driver": "gfile"},
        "metadata": {"shape": [4], "chunks": [4], "dtype": "<f4", "compressor": {"id": "gzip"}},
    }
    content = {"version": 2, "optimizer": {"target": {"scale": early}}}
    (tmp_path / "checkpoint").write_bytes(serialization.msgpack_serialize(content))
    assert read_tree(str(tmp_path)).arrays == {"target/scale": StoredArray((4,), "float32")}


@pytest.mark.parametrize("prefix", ["gs://", "/gcs/"])
def test_one_in_a_bucket_is_read_from_the_disk(prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No client is involved: no server runs here, and a client would cache what it has seen."""
    (tmp_path / "buckets/mine/model").mkdir(parents=True)
    for example, step in ((ORBAX, 8), (OLDER, 3)):
        (tmp_path / f"buckets/mine/model/checkpoint_{step}").symlink_to(example)
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    monkeypatch.setenv(SOURCE_VARIABLE, str(tmp_path / "buckets"))
    folder = f"{prefix}mine/model"
    assert checkpoint_steps(folder) == [3, 8]
    for step, layout, arrays in ((8, StoredLayout.ORBAX, 261), (3, StoredLayout.T5X, 11)):
        tree = read_tree(f"{folder}/checkpoint_{step}")
        assert (tree.layout, len(tree.arrays)) == (layout, arrays)


def test_no_checkpoint_at_all(tmp_path: Path) -> None:
    assert read_tree(str(tmp_path)) is None


def shapes(arrays: Mapping[str, tuple[int, ...]], empty: tuple[str, ...] = ()) -> Any:
    return types.SimpleNamespace(
        leaves=[types.SimpleNamespace(path=p, shape=s) for p, s in arrays.items()], empty=empty
    )


def model(**changed: Any) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the reference checkpoint with some changes; None removes an array."""
    tree = read_tree(str(ORBAX))
    merged = {name: array.shape for name, array in tree.arrays.items()} | changed
    return {name: shape for name, shape in merged.items() if shape is not None}


def restore(**fields: Any) -> Any:
    manager = type("Manager", (), {"__module__": "t5x.checkpoints"})
    settings = {"state_transformation_fns": (), "fallback_to_scratch": False, "checkpoint_manager_cls": manager}
    return types.SimpleNamespace(**settings | fields)


def fit(arrays: Mapping[str, tuple[int, ...]], **fields: Any) -> CheckpointFit:
    start = StartPoint(path=str(ORBAX), checkpoint=str(ORBAX), reachable=True, restore=restore(**fields))
    return compare(start, shapes(arrays))


def test_the_same_tree_fits() -> None:
    found = fit(model())
    assert found.fits
    assert found.same == 261


def test_another_shape_is_named_parameters_first() -> None:
    found = fit(model(**{"state/param_states/token_embedder/embedding/v": (1,), EMBEDDING: (384, 8)}))
    assert found.different[0] == (EMBEDDING, (384, 16), (384, 8))
    assert not found.fits


@pytest.mark.parametrize("apart", [False, True])
def test_t5x_compares_the_shape_of_state_that_has_a_folder_of_its_own(tmp_path: Path, apart: bool) -> None:
    folder, state = tmp_path / "checkpoint_4", "state/param_states/scale/v"
    arrays = {"target/scale": np.ones(8, np.float32), state: np.ones(1, np.float32)}
    write_legacy_checkpoint(folder, arrays, {"target/scale", *([state] if apart else [])})
    start = StartPoint(path="x", checkpoint=str(folder), reachable=True, restore=restore())
    found = compare(start, shapes({"target/scale": (8,), state: (8,)}))
    assert found.different == ((state, (1,), (8,)),)
    assert found.is_restored is not apart


def test_what_the_checkpoint_lacks_is_missing_and_what_it_has_more_is_left_out() -> None:
    found = fit(model(**{"target/new/kernel": (2, 2), EMBEDDING: None}))
    assert found.missing == ("target/new/kernel",)
    assert found.left_out == (EMBEDDING,)


def test_fallback_fills_what_is_missing() -> None:
    found = fit(model(**{"target/new/kernel": (2, 2)}), fallback_to_scratch=True)
    assert found.fits
    assert found.from_scratch == ("target/new/kernel",)


def test_orbax_is_to_restore_something() -> None:
    """Of a checkpoint of which nothing is left, orbax says that a dict is not an int."""
    found = fit({"target/new/kernel": (2, 2)}, fallback_to_scratch=True)
    assert found.restores_nothing
    assert not found.fits
    plan = types.SimpleNamespace(fit=found, start=StartPoint(checkpoint=str(ORBAX)), restore_key=lambda parameter: None)
    (finding,) = other_tree.check(plan)
    assert finding.message == (
        f"the assignment_map drops every array of the checkpoint {ORBAX}, and orbax stops where it has nothing to "
        "restore"
    )


def test_an_assignment_map_is_applied_by_the_runtime() -> None:
    def apply_assignment_map(stored: Any, _ours: Any, assignment_map: Any) -> Any:
        stored["target"]["new"] = stored["target"].pop(assignment_map[0][0])
        return stored

    apply_assignment_map.__module__ = "t5x.state_utils"
    rename = functools.partial(apply_assignment_map, assignment_map=[("token_embedder", None)])
    found = fit(model(**{EMBEDDING: None, "target/new/embedding": (384, 16)}), state_transformation_fns=(rename,))
    assert found.fits


@pytest.mark.parametrize(
    ("assignments", "says"),
    [
        ([("*bad(", "x")], "'*bad(' is not valid: nothing to repeat at position 0"),
        ([("target/(.*)", r"\2")], r"'\\2' is not valid: invalid group reference 2 at position 1"),
        ([("a", "b", "c")], "its items are not pairs of a pattern and a name: too many values to unpack (expected 2)"),
        (5, "its items are not pairs of a pattern and a name: 'int' object is not iterable"),
    ],
)
def test_an_assignment_map_that_no_checkpoint_fits(assignments: Any, says: str) -> None:
    """The mistake is known without the checkpoint, which may be out of reach."""

    def apply_assignment_map() -> None:
        raise AssertionError("it is not called")

    apply_assignment_map.__module__ = "t5x.state_utils"
    transform = functools.partial(apply_assignment_map, assignment_map=assignments)
    start = StartPoint(path="gs://elsewhere/checkpoint_1", restore=restore(state_transformation_fns=(transform,)))
    found = compare(start, shapes(model()))
    assert not found.fits
    assert found.bad_map == says


def test_state_that_the_optimizer_does_not_keep_is_unwanted() -> None:
    frozen, kept = "state/param_states/token_embedder/embedding", "state/param_states/nothing"
    start = StartPoint(path=str(ORBAX), checkpoint=str(ORBAX), reachable=True, restore=restore())
    state = shapes({n: s for n, s in model().items() if not n.startswith(f"{frozen}/")}, (frozen, kept))
    found = compare(start, state)
    assert found.unwanted == (frozen,)
    assert not found.fits


def test_what_the_assignment_map_drops_is_not_blamed_on_the_checkpoint() -> None:
    def apply_assignment_map(stored: Any, _ours: Any, assignment_map: Any) -> Any:
        del stored["target"][assignment_map[0][0]]
        return stored

    apply_assignment_map.__module__ = "t5x.state_utils"
    drop = functools.partial(apply_assignment_map, assignment_map=[("token_embedder", None)])
    found = fit(model(**{"target/new/kernel": (2, 2)}), state_transformation_fns=(drop,))
    assert set(found.missing) == {EMBEDDING, "target/new/kernel"}
    assert found.dropped == (EMBEDDING,)


def test_the_users_own_transformation_is_not_judged() -> None:
    def halve(*_: Any) -> Any:
        raise AssertionError("it is not called")

    found = fit(model(), state_transformation_fns=(halve,))
    assert found.unjudged.startswith("its tree is changed by ")
    assert not found.fits


def test_metadata_that_cannot_be_read_is_damage(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(b"\xc1")
    found = compare(StartPoint(path="x", checkpoint=str(tmp_path), reachable=True), shapes({}))
    assert found.damage == "its metadata cannot be read: FormatError"
    assert not found.fits


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("_METADATA", "state/_METADATA is not JSON: Unterminated string "),
        ("array_metadatas/process_0", "state/array_metadatas/process_0 is not JSON: "),
        ("manifest.ocdbt", "Error decoding manifest: "),
    ],
)
def test_damage_names_the_file_of_orbax(tmp_path: Path, file: str, says: str) -> None:
    folder = shutil.copytree(ORBAX, tmp_path / "checkpoint_8")
    damaged = folder / "state" / file
    damaged.parent.mkdir(exist_ok=True)
    damaged.write_bytes(damaged.read_bytes()[:-20] if damaged.exists() else b"[")
    found = compare(StartPoint(path="x", checkpoint=str(folder), reachable=True, restore=restore()), shapes({}))
    assert says in found.damage


def _break_file(array: Path) -> None:
    (array / "0").write_bytes(b"cut off")


@pytest.mark.parametrize(
    ("harm", "reason"), [(_break_file, "Error reading local file"), (shutil.rmtree, "Error opening")]
)
def test_an_array_that_cannot_be_read_is_damage(tmp_path: Path, harm: Callable[[Path], None], reason: str) -> None:
    """This holds even if the user's own code, which is not called, changes the restored arrays."""
    folder = tmp_path / "checkpoint_4"
    arrays = {"target/scale": np.ones(8, np.float32), "state/step": np.asarray(4, np.int32)}
    write_legacy_checkpoint(folder, arrays, {"target/scale"})
    restore = types.SimpleNamespace(checkpoint_manager_cls=None, state_transformation_fns=(print,))
    start = StartPoint(path="x", checkpoint=str(folder), reachable=True, restore=restore)
    ours = shapes({"target/scale": (8,), "state/step": ()})
    assert compare(start, ours).unjudged == "its tree is changed by builtins.print"
    harm(folder / "target.scale")
    found = compare(start, ours)
    assert found.damage.startswith("target/scale: ")
    assert reason in found.damage


def test_a_chunk_of_zeros_that_was_not_written_is_not_damage(tmp_path: Path) -> None:
    """Tensorstore leaves out such a chunk, and reads zeros in its place."""
    write_legacy_checkpoint(tmp_path, {"target/bias": np.zeros(8, np.float32)}, {"target/bias"})
    (tmp_path / "target.bias" / "0").unlink(missing_ok=True)
    tree = read_tree(str(tmp_path))
    assert unreadable(str(tmp_path), tree, tree.arrays) is None


def test_what_is_not_restored_may_be_damaged(tmp_path: Path) -> None:
    """Evaluation does not read the optimizer's state, and no run reads what the assignment map drops."""

    def apply_assignment_map(stored: Any, _ours: Any) -> Any:
        return {"target": stored["target"]}

    apply_assignment_map.__module__ = "t5x.state_utils"
    folder = tmp_path / "checkpoint_4"
    state = "state/param_states/scale/v"
    arrays = {name: np.ones(8, np.float32) for name in ("target/scale", state)}
    write_legacy_checkpoint(folder, arrays, arrays.keys())
    shutil.rmtree(folder / state.replace("/", "."))
    start = StartPoint(path="x", checkpoint=str(folder), reachable=True, restore=restore())
    assert compare(start, shapes({"target/scale": (8,)})).fits
    training = shapes(dict.fromkeys(arrays, (8,)))
    assert compare(start, training).damage.startswith(f"{state}: ")
    dropping = restore(state_transformation_fns=(apply_assignment_map,), fallback_to_scratch=True)
    start = StartPoint(path="x", checkpoint=str(folder), reachable=True, restore=dropping)
    assert compare(start, training).fits


LAYER = "target/decoder/layers_{}/mlp/{}/kernel"


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([LAYER.format(0, "wi_0"), LAYER.format(0, "wi_1")], [LAYER.format(0, "wi")], "is not gated"),
        ([LAYER.format(0, "wi")], [LAYER.format(0, "wi_0")], "MLP is gated"),
        (
            [LAYER.format(n, "wo") for n in (0, 1, 2)],
            [LAYER.format(n, "wo") for n in (0, 1)],
            "the checkpoint's decoder has 2 layers, this model's has 3",
        ),
        ([LAYER.format(0, "wo")], ["target/decoder/decoder/mlp/wo/kernel"], "layers are stacked"),
        (["target/decoder/decoder/mlp/wo/kernel"], [LAYER.format(0, "wo")], "(scan_layers)"),
        (["target/decoder/logits_dense/kernel"], [EMBEDDING], "output shares the embedding"),
        (["state/param_states/0/count"], ["state/param_states/x/v"], "written with another optimizer"),
        (["state/param_states/x/v"], [EMBEDDING], "holds no optimizer state"),
    ],
)
def test_what_a_missing_array_means(ours: list[str], theirs: list[str], expected: str) -> None:
    tree = StoredTree(StoredLayout.ORBAX, {name: StoredArray((1,), "float32") for name in theirs})
    missing = tuple(name for name in ours if name not in theirs)
    assert expected in CheckpointFit(tree, missing=missing).why_missing


def test_what_another_shape_means() -> None:
    kernel = "target/decoder/logits_dense/kernel"
    other_words = CheckpointFit(different=((EMBEDDING, (32000, 8), (32128, 8)), (kernel, (8, 32000), (8, 32128))))
    assert other_words.vocabulary_sizes == (32000, 32128)
    transposed = CheckpointFit(different=(("target/x/kernel", (2, 3), (3, 2)),))
    assert transposed.why_shapes_differ == "the arrays are transposed"
    both = CheckpointFit(different=(*other_words.different, *transposed.different))
    assert both.vocabulary_sizes is None
    assert both.why_shapes_differ is None
