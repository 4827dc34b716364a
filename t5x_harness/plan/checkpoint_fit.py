"""Compares a checkpoint's tree with the model's, using only the checkpoint's metadata.

T5X restores the model's arrays, ignores the rest of the checkpoint, and fails if the checkpoint lacks an array.
Names are compared after T5X's own function has applied the config's ``assignment_map``.
"""

import dataclasses
import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from flax import traverse_util

from t5x_harness.plan.checkpoint_source import StartPoint
from t5x_harness.plan.state_shapes import StateShapes
from t5x_harness.plan.stored_tree import StoredArray, StoredLayout, StoredTree, read_tree, unreadable

_Shape = tuple[int, ...]

_TARGET = "target/"
_TOKEN_AXES = {"token_embedder/embedding": 0, "logits_dense/kernel": 1}
"""The parameters with a row or a column for each token, and the number of that axis."""

_LAYER = re.compile(r"/layers_(\d+)/")
_STACKED = re.compile(r"^target/(?:encoder/encoder|decoder/decoder|encoder/layers|decoder/layers)/")


@dataclasses.dataclass(frozen=True)
class CheckpointFit:
    """The differences between a checkpoint and the train state.

    Attributes:
      tree: the contents of the checkpoint.
      different: arrays whose shapes differ, with those in the checkpoint and in the model, parameters first.
      missing: the train state's arrays that the checkpoint lacks, parameters first.
      from_scratch: the missing arrays, if the config fills them with new values (``fallback_to_scratch``).
      left_out: the checkpoint's parameters that the model does not have.
      unwanted: the parameters for which the checkpoint holds an optimizer's state and the train state holds None.
      is_restored: whether T5X restores the arrays whose shapes differ: it does not compare those of the optimizer's
        state in orbax layout, nor in the msgpack file of its older one.
      same: the number of arrays that agree.
      bad_map: T5X's reason why the assignment_map cannot be applied; None if it can.
      damage: the reason why the checkpoint cannot be read; if there is one, everything else is empty.
      unjudged: the reason why nothing can be compared; if there is one, everything else is empty.
    """

    tree: StoredTree | None = None
    different: tuple[tuple[str, _Shape, _Shape], ...] = ()
    missing: tuple[str, ...] = ()
    from_scratch: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()
    is_restored: bool = False
    same: int = 0
    bad_map: str | None = None
    damage: str | None = None
    unjudged: str | None = None

    @property
    def dropped(self) -> tuple[str, ...]:
        """The missing arrays that the checkpoint has but the assignment_map drops."""
        stored = self.tree.arrays if self.tree is not None else {}
        return tuple(name for name in self.missing if name in stored)

    @property
    def restores_nothing(self) -> bool:
        """Whether orbax, which refuses that, is to restore no array: the config fills all with new values."""
        is_orbax = self.tree is not None and self.tree.layout is StoredLayout.ORBAX
        return is_orbax and bool(self.from_scratch) and not (self.same or self.different)

    @property
    def fits(self) -> bool:
        """Whether T5X can restore the checkpoint."""
        wrong = self.different or self.missing or self.unwanted or self.bad_map or self.damage or self.unjudged
        return not (wrong or self.restores_nothing)

    @property
    def vocabulary_sizes(self) -> tuple[int, int] | None:
        """The vocabulary sizes of the checkpoint and the model, if the parameters differ only in these."""
        sizes = {_tokens(*part) for part in self.different if part[0].startswith(_TARGET)}
        return sizes.pop() if len(sizes) == 1 else None

    @property
    def why_shapes_differ(self) -> str | None:
        """An explanation for arrays of another shape; None if no known one fits."""
        if sizes := self.vocabulary_sizes:
            return f"the checkpoint's vocabulary has {sizes[0]} entries and this model's {sizes[1]}"
        transposed = self.different and all(len(a) > 1 and a == b[::-1] for _, a, b in self.different)
        return "the arrays are transposed" if transposed else None

    @property
    def why_missing(self) -> str | None:
        """An explanation for the arrays that the checkpoint lacks; None if no known one fits."""
        return next(_reasons(self.missing, self.tree.arrays if self.tree else {}), None)


def _reasons(missing: Collection[str], stored: Collection[str]) -> Iterator[str]:
    lacks_layers, has_layers = any(map(_LAYER.search, missing)), any(map(_LAYER.search, stored))
    if lacks_layers and not has_layers and any(map(_STACKED.match, stored)):
        yield (
            "the checkpoint's layers are stacked in one array each (a scanned model, as of scalable_t5), and this "
            "model's are not"
        )
    if any(map(_STACKED.match, missing)) and has_layers:
        yield "this model's layers are stacked in one array each (scan_layers), and the checkpoint's are not"
    if _any(missing, "/mlp/wi_0/") and _any(stored, "/mlp/wi/"):
        yield "the checkpoint's MLP is not gated (mlp/wi), as in T5 1.0, and this model's is (mlp/wi_0, mlp/wi_1)"
    if _any(missing, "/mlp/wi/") and _any(stored, "/mlp/wi_0/"):
        yield "the checkpoint's MLP is gated (mlp/wi_0, mlp/wi_1), as in T5 1.1, and this model's is not (mlp/wi)"
    for stack in ("encoder", "decoder"):
        ours, theirs = _layers(missing, stack), _layers(stored, stack)
        if theirs and ours and min(ours) == max(theirs) + 1:
            yield f"the checkpoint's {stack} has {max(theirs) + 1} layers, this model's has {max(ours) + 1}"
    if _any(missing, "target/decoder/logits_dense/"):
        yield (
            "the checkpoint's output shares the embedding, as in T5 1.0, and this model's has weights of its own "
            "(logits_via_embedding = False)"
        )
    if missing and not _any(missing, "target/"):
        if _any(stored, "state/param_states/"):
            yield "the checkpoint was written with another optimizer"
        else:
            yield "the checkpoint holds no optimizer state"


def _tokens(name: str, stored: tuple[int, ...], ours: tuple[int, ...]) -> tuple[int, int] | None:
    axis = next((axis for end, axis in _TOKEN_AXES.items() if name.endswith(end)), None)
    if axis is None or len(stored) != 2 or len(ours) != 2 or stored[1 - axis] != ours[1 - axis]:
        return None
    return stored[axis], ours[axis]


def _any(names: Collection[str], part: str) -> bool:
    return any(part in name for name in names)


def _layers(names: Collection[str], stack: str) -> set[int]:
    return {int(found[1]) for name in names if (found := re.match(rf"target/{stack}/layers_(\d+)/", name))}


def compare(start: StartPoint, shapes: StateShapes | None) -> CheckpointFit | None:
    """Compares the checkpoint to start from with the train state.

    Returns:
      The comparison; None if either cannot be read, and the assignment_map by itself shows no mistake.
    """
    if start.path is not None and shapes is not None and (reason := _refused_map(start.restore, shapes)):
        return CheckpointFit(bad_map=reason)
    if start.checkpoint is None or not start.reachable or shapes is None:
        return None
    manager = getattr(start.restore, "checkpoint_manager_cls", None)
    if manager is not None and not _is_runtimes(manager):
        return CheckpointFit(unjudged=f"it is restored by {_name(manager)}")
    try:
        tree = read_tree(start.checkpoint)
    except Exception as error:  # orbax, tensorstore, msgpack and TensorFlow each raise their own exceptions
        return CheckpointFit(damage=_unread(error))
    if tree is None and start.resumes:  # T5X takes it for a checkpoint because of its name
        return CheckpointFit(damage="it has no arrays, neither a folder state (orbax) nor a file checkpoint")
    if tree is None:
        return CheckpointFit(unjudged="its layout is not known")
    ours = {leaf.path: leaf.shape for leaf in shapes.leaves}
    own = [t for t in getattr(start.restore, "state_transformation_fns", ()) if not _is_assignment_map(t)]
    try:  # the user's own functions are not called
        stored = tree.arrays if own else _transformed(start.restore, tree.arrays, ours)
    except ValueError as error:
        return CheckpointFit(tree, bad_map=str(error).split("Must be one of:")[0].strip())
    restored = {id(array) for name, array in stored.items() if name in ours}
    if damage := _damage(start.checkpoint, tree, [name for name, a in tree.arrays.items() if id(a) in restored]):
        return CheckpointFit(damage=damage)
    if own:
        return CheckpointFit(unjudged=f"its tree is changed by {_name(own[0])}")
    return _compare(start.restore, tree, stored, shapes)


def _damage(checkpoint: str, tree: StoredTree, names: Collection[str]) -> str | None:
    try:
        return unreadable(checkpoint, tree, names)
    except Exception as error:
        return _unread(error)


def _unread(error: Exception) -> str:
    first, *_ = str(error).splitlines() or [type(error).__name__]
    return f"its metadata cannot be read: {first}"


def _refused_map(restore: Any, shapes: StateShapes) -> str | None:
    """Returns what is wrong with the assignment maps, no matter what the checkpoint holds, or None."""
    try:
        checkpoint_names(restore, [leaf.path for leaf in shapes.leaves])
    except re.error as error:
        return f"{error.pattern!r} is not valid: {error}"
    except (TypeError, ValueError) as error:
        return f"its items are not pairs of a pattern and a name: {error}"
    return None


def _transformed(
    restore: Any, stored: Mapping[str, StoredArray], ours: Mapping[str, _Shape]
) -> Mapping[str, StoredArray]:
    """Returns the checkpoint's arrays under the names that the config's assignment maps give them."""
    for transform in getattr(restore, "state_transformation_fns", ()):
        changed = transform(*(traverse_util.unflatten_dict(tree, sep="/") for tree in (stored, ours)))
        stored = traverse_util.flatten_dict(changed, sep="/")
    return stored


def _compare(restore: Any, tree: StoredTree, stored: Mapping[str, StoredArray], shapes: StateShapes) -> CheckpointFit:
    ours = {leaf.path: leaf.shape for leaf in shapes.leaves}
    if tree.layout is StoredLayout.TENSORFLOW:
        ours = {name: shape for name, shape in ours.items() if name.startswith(_TARGET)}
    ordered = sorted(ours, key=lambda name: not name.startswith(_TARGET))
    missing = tuple(name for name in ordered if name not in stored)
    different = tuple((n, stored[n].shape, ours[n]) for n in ordered if n in stored and stored[n].shape != ours[n])
    is_orbax = tree.layout is StoredLayout.ORBAX
    filled = getattr(restore, "fallback_to_scratch", False)
    return CheckpointFit(
        tree=tree,
        different=different,
        is_restored=all(not n.startswith(_TARGET) and (is_orbax or stored[n].is_in_file) for n, _, _ in different),
        missing=() if filled else missing,
        from_scratch=missing if filled else (),
        left_out=tuple(name for name in stored if name.startswith(_TARGET) and name not in ours),
        unwanted=tuple(name for name in shapes.empty if any(held.startswith(f"{name}/") for held in stored)),
        same=len(ours) - len(different) - len(missing),
    )


def checkpoint_names(restore: Any, names: Iterable[str]) -> dict[str, str]:
    """Returns the names that the arrays of a train state have in the checkpoint, by the config's assignment maps.

    The effect of the user's own transformations is not known here.

    Args:
      restore: T5X's RestoreCheckpointConfig.
      names: the names of the train state's arrays.

    Returns:
      The checkpoint's names, by the train state's names. An array that the maps drop keeps its name: the checkpoint may
      have it.
    """
    found = {name: name for name in names}
    for transform in reversed(getattr(restore, "state_transformation_fns", ())):  # the first reads the file
        if isinstance(transform, functools.partial) and _is_assignment_map(transform):
            assignments = transform.keywords.get("assignment_map", ())
            found = {name: _source(source, assignments) for name, source in found.items()}
    return found


def _source(name: str, assignments: Iterable[tuple[str, str | None]]) -> str:
    for pattern, replacement in assignments:
        if match := re.fullmatch(pattern, name):
            return name if replacement is None else match.expand(replacement)
    return name


def _is_assignment_map(transform: Any) -> bool:
    function = transform.func if isinstance(transform, functools.partial) else transform
    return getattr(function, "__name__", "") == "apply_assignment_map" and _is_runtimes(function)


def _is_runtimes(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).split(".")[0] == "t5x"


def _name(thing: Any) -> str:
    thing = thing.func if isinstance(thing, functools.partial) else thing
    return f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', type(thing).__qualname__)}"
