"""Nested state dicts as flat ones: compare, merge and rename the leaves of checkpoints."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging
from flax import traverse_util

_TENSORSTORE_KEYS = frozenset(("driver", "kvstore", "metadata"))


def tensorstore_leaf(_: Any, value: Mapping[str, Any]) -> bool:
    """Returns whether a mapping is one array, as the JSON of a ``tensorstore.Spec``, not a branch of the tree."""
    return _TENSORSTORE_KEYS.issubset(value)


def flatten_state_dict(state_dict: Mapping[str, Any], keep_empty_nodes: bool = False) -> dict[str, Any]:
    """Flattens a state dict to ``{"target/encoder/...": leaf}``, in its order; serialized tensorstore specs stay whole.

    With ``keep_empty_nodes``, empty branches are ``traverse_util.empty_node``.
    """
    return traverse_util.flatten_dict(state_dict, keep_empty_nodes=keep_empty_nodes, is_leaf=tensorstore_leaf, sep="/")


def get_name_tree(state_dict: Mapping[str, Any], keep_empty_nodes: bool = False) -> dict[str, Any]:
    """Returns a tree of the same structure whose leaves are their own paths, joined with ``/``."""
    paths = traverse_util.flatten_dict(state_dict, keep_empty_nodes=keep_empty_nodes)
    return traverse_util.unflatten_dict({path: "/".join(path) for path in paths})


def intersect_state(state_dict: Mapping[str, Any], intersect_state_dict: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a new nested dict with the leaves of a state whose paths the other state has too; logs the others."""
    wanted = flatten_state_dict(intersect_state_dict)
    kept = {}
    for path, leaf in flatten_state_dict(state_dict).items():
        if path in wanted:
            kept[path] = leaf
        else:
            logging.warning("%s is not in the checkpoint and is left out of the restore", path)
    return traverse_util.unflatten_dict(kept, sep="/")


def merge_state(
    state_dict: Mapping[str, Any], from_scratch_state: Mapping[str, Any], overwrite: bool = False
) -> Mapping[str, Any]:
    """Returns a new nested dict in which the leaves that a state lacks come from a freshly initialized one; logs them.

    With ``overwrite``, fresh leaves also replace the state's own.
    """
    merged = flatten_state_dict(state_dict)
    fresh = flatten_state_dict(from_scratch_state)
    added = fresh if overwrite else {path: leaf for path, leaf in fresh.items() if path not in merged}
    for path in added:
        logging.warning("%s starts from its initial value", path)
    return traverse_util.unflatten_dict(merged | added, sep="/")


def apply_assignment_map(
    ckpt_optimizer_state: Mapping[str, Any],
    optimizer_state: Mapping[str, Any],
    assignment_map: Sequence[tuple[str, str | None]],
    require_all_rules_match: bool = True,
    *,
    is_resuming: bool = False,
) -> Mapping[str, Any]:
    r"""Renames the leaves of a checkpoint to fit a model.

    ``assignment_map`` has pairs of a regular expression for a path of the model, and the checkpoint path that it takes
    (which may use groups such as ``\1``), or None to keep the initial value. Each path of the model takes its
    value by the first rule whose pattern fits the whole path. Checkpoint leaves that a rule used lose their old path,
    several paths may use one leaf, and a path that no rule fits keeps the checkpoint's leaf of that path.

    This run's own checkpoint is renamed already: with ``is_resuming``, it is returned unchanged.

    Raises:
        ValueError: a rule names a leaf that the checkpoint lacks, or, with ``require_all_rules_match``, fits no path.
    """
    if is_resuming:
        return ckpt_optimizer_state

    available = flatten_state_dict(ckpt_optimizer_state)
    wanted = flatten_state_dict(optimizer_state)
    sources: dict[str, str] = {}  # path in the model -> path in the checkpoint
    dropped: set[str] = set()
    idle_rules = dict.fromkeys(range(len(assignment_map)))
    for path in wanted:
        for index, (pattern, replacement) in enumerate(assignment_map):
            match = re.fullmatch(pattern, path)
            if match is None:
                continue
            idle_rules.pop(index, None)
            if replacement is None:
                dropped.add(path)
            else:
                source = sources[path] = match.expand(replacement)
                if source not in available:
                    raise ValueError(
                        f"assignment_map: the rule {(pattern, replacement)!r} gives {path!r} the checkpoint's "
                        f"{source!r}, which it does not have. It has: {sorted(available)}"
                    )
            break
    if require_all_rules_match and idle_rules:
        idle = [assignment_map[index][0] for index in idle_rules]
        raise ValueError(f"assignment_map: no parameter of the model is left for these patterns: {idle}")

    moved = set(sources.values())
    result = {path: available[source] for path, source in sources.items()}
    result |= {path: leaf for path, leaf in available.items() if path not in moved and path not in dropped}
    for path in wanted:
        if path in result or path in dropped:
            continue
        if path in available:
            result[path] = available[path]
        else:
            logging.warning("%s has no rule in assignment_map and is not in the checkpoint", path)
    for path, source in sources.items():
        logging.info("%s takes the checkpoint's %s", path, source)
    return traverse_util.unflatten_dict(result, sep="/")
