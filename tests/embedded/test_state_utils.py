"""State dicts are compared, merged and renamed leaf by leaf."""

from __future__ import annotations

import pytest
from flax import traverse_util
from hypothesis import given
from hypothesis import strategies as st
from t5x import state_utils

SPEC = {"driver": "zarr", "kvstore": {"driver": "file", "path": "a"}, "metadata": {"shape": [2]}}
NAMES = st.sampled_from(["a", "b", "c", "enc", "dec"])
FLAT = st.dictionaries(st.tuples(NAMES, NAMES, NAMES), st.integers(), max_size=8)


def nested(flat: dict) -> dict:
    return traverse_util.unflatten_dict(flat)


def test_a_stored_array_is_a_leaf() -> None:
    assert state_utils.flatten_state_dict({"t": {"x": SPEC, "y": 1}}) == {"t/x": SPEC, "t/y": 1}
    assert state_utils.tensorstore_leaf((), {**SPEC, "dtype": "float32"})
    assert not state_utils.tensorstore_leaf((), {"driver": "zarr", "metadata": {}})


def test_empty_branches_are_kept_on_demand() -> None:
    tree = {"a": {}, "b": {"c": 1}}
    assert state_utils.flatten_state_dict(tree) == {"b/c": 1}
    assert state_utils.flatten_state_dict(tree, keep_empty_nodes=True).keys() == {"a", "b/c"}
    assert state_utils.get_name_tree(tree, keep_empty_nodes=True) == {"a": "a", "b": {"c": "b/c"}}


@given(FLAT)
def test_a_name_tree_names_every_leaf_by_its_path(flat: dict) -> None:
    names = state_utils.get_name_tree(nested(flat))
    assert state_utils.flatten_state_dict(names) == {"/".join(p): "/".join(p) for p in flat}


@given(FLAT, FLAT)
def test_intersecting_keeps_shared_paths_with_the_first_values(first: dict, second: dict) -> None:
    kept = state_utils.intersect_state(nested(first), nested(second))
    assert traverse_util.flatten_dict(kept) == {p: v for p, v in first.items() if p in second}


@given(FLAT, FLAT, st.booleans())
def test_merging_fills_gaps_and_overwrites_on_demand(first: dict, second: dict, overwrite: bool) -> None:
    merged = state_utils.merge_state(nested(first), nested(second), overwrite=overwrite)
    assert traverse_util.flatten_dict(merged) == ({**first, **second} if overwrite else {**second, **first})


@given(FLAT, FLAT)
def test_without_rules_a_state_keeps_its_leaves(stored: dict, model: dict) -> None:
    assert traverse_util.flatten_dict(state_utils.apply_assignment_map(nested(stored), nested(model), [])) == stored


def assign(stored: dict, model: dict, rules: list, **settings) -> dict:
    stored, model = (traverse_util.unflatten_dict(tree, sep="/") for tree in (stored, model))
    return state_utils.flatten_state_dict(state_utils.apply_assignment_map(stored, model, rules, **settings))


@pytest.mark.parametrize(
    ("stored", "model", "rules", "expected"),
    [
        # A rule renames, and the old name goes.
        ({"t/old/k": 1}, {"t/new/k": 0}, [(r"t/new/(.*)", r"t/old/\1")], {"t/new/k": 1}),
        # Names swap in one pass.
        ({"t/a": 1, "t/b": 2}, {"t/a": 0, "t/b": 0}, [("t/a", "t/b"), ("t/b", "t/a")], {"t/a": 2, "t/b": 1}),
        # One stored leaf serves several names.
        ({"t/a": 1}, {"t/x": 0, "t/y": 0}, [("t/[xy]", "t/a")], {"t/x": 1, "t/y": 1}),
        # The first rule that fits counts.
        ({"t/a": 1, "t/b": 2}, {"t/x": 0}, [("t/x", "t/a"), (".*", "t/b")], {"t/x": 1, "t/b": 2}),
        # None leaves a name to its initial value, though the checkpoint has it.
        ({"t/a": 1, "t/b": 2}, {"t/a": 0, "t/b": 0}, [("t/a", None)], {"t/b": 2}),
        # A leaf that moved still serves its own name, if no rule fits that.
        ({"t/a": 1}, {"t/a": 0, "t/x": 0}, [("t/x", "t/a")], {"t/a": 1, "t/x": 1}),
        # Leaves that the model has not stay.
        ({"t/a": 1, "t/z": 5}, {"t/a": 0}, [], {"t/a": 1, "t/z": 5}),
    ],
)
def test_rules_rename(stored: dict, model: dict, rules: list, expected: dict) -> None:
    assert assign(stored, model, rules, require_all_rules_match=False) == expected


def test_a_run_that_resumes_is_not_renamed_again() -> None:
    assert assign({"t/a": 1}, {"t/b": 0}, [("t/b", "t/a")], is_resuming=True) == {"t/a": 1}


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_a_rule_without_source_names_the_leaves_there_are() -> None:
    message = r"gives 't/x' the checkpoint's 't/nope', which it does not have. It has: \['t/a'\]"
    with pytest.raises(ValueError, match=message):
        assign({"t/a": 1}, {"t/x": 0}, [("t/x", "t/nope")])


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_a_rule_that_fits_nothing_is_refused_unless_allowed() -> None:
    rules = [("t/a", "t/a"), ("t/typo", "t/a")]
    with pytest.raises(ValueError, match=r"no parameter of the model is left for these patterns: \['t/typo'\]"):
        assign({"t/a": 1}, {"t/a": 0}, rules)
    assert assign({"t/a": 1}, {"t/a": 0}, rules, require_all_rules_match=False) == {"t/a": 1}
