"""How a checkpoint's tree compares with the model's, by the checkpoint's metadata alone.

T5X takes what the model has, ignores the rest of the checkpoint, and fails if the checkpoint lacks something.
Names are compared after the config's ``assignment_map``, which T5X's own function applies.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from t5x_harness.plan.checkpoint_source import StartPoint
from t5x_harness.plan.stored_tree import StoredArray, StoredLayout, StoredTree, read_tree, unreadable

if TYPE_CHECKING:
    from t5x_harness.plan.state_shapes import StateShapes

_Shape = tuple[int, ...]

_TARGET = "target/"


@dataclasses.dataclass(frozen=True)
class CheckpointFit:
    """Where a checkpoint and the train state differ.

    Attributes:
      tree: what the checkpoint holds.
      different: arrays whose shapes differ, with those in the checkpoint and in the model, parameters first.
      missing: the train state's arrays that the checkpoint lacks, parameters first.
      from_scratch: the missing arrays, if the config fills them with new values (``fallback_to_scratch``).
      left_out: the checkpoint's parameters that the model does not have.
      unwanted: the parameters for which the checkpoint holds an optimizer's state and the train state holds None.
      same: how many arrays agree.
      bad_map: why the assignment_map cannot be applied, in T5X's words.
      damage: why the checkpoint cannot be read; everything else is empty then.
      unjudged: why nothing can be said; everything else is empty then.
    """

    tree: StoredTree | None = None
    different: tuple[tuple[str, _Shape, _Shape], ...] = ()
    missing: tuple[str, ...] = ()
    from_scratch: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()
    same: int = 0
    bad_map: str | None = None
    damage: str | None = None
    unjudged: str | None = None

    @property
    def dropped(self) -> tuple[str, ...]:
        """The missing arrays that the checkpoint has and the assignment_map drops."""
        stored = self.tree.arrays if self.tree is not None else {}
        return tuple(name for name in self.missing if name in stored)

    @property
    def fits(self) -> bool:
        """Whether T5X can restore the checkpoint."""
        return not (self.different or self.missing or self.unwanted or self.bad_map or self.damage or self.unjudged)


def compare(start: StartPoint, shapes: StateShapes | None) -> CheckpointFit | None:
    """Compares the checkpoint to start from with the train state.

    Returns:
      None if either cannot be read, and the assignment_map by itself shows no mistake.
    """
    if start.path is not None and shapes is not None and (reason := _refused_map(start.restore, shapes)):
        return CheckpointFit(bad_map=reason)
    if start.checkpoint is None or not start.reachable or shapes is None:
        return None
    if reason := _foreign_manager(start.restore):
        return CheckpointFit(unjudged=reason)
    try:
        tree = read_tree(start.checkpoint)
        damage = unreadable(start.checkpoint, tree) if tree is not None else None
    except Exception as error:  # orbax, tensorstore, msgpack and TensorFlow each raise their own
        first, *_ = str(error).splitlines() or [type(error).__name__]
        return CheckpointFit(damage=f"its metadata cannot be read: {first}")
    if tree is None:
        return CheckpointFit(unjudged="its layout is not known")
    if damage:
        return CheckpointFit(damage=damage)
    if reason := _foreign_transform(start.restore):
        return CheckpointFit(unjudged=reason)
    return _compare(start.restore, tree, shapes)


def _refused_map(restore: Any, shapes: StateShapes) -> str | None:
    """Returns what is wrong with the assignment maps, whatever the checkpoint holds, or None."""
    maps = _assignment_maps(restore)
    try:
        checkpoint_names(restore, (leaf.path for leaf in shapes.leaves) if maps else ())
    except re.error as error:
        return f"{error.pattern!r} is not valid: {error}"
    except (TypeError, ValueError) as error:
        return f"its items are not pairs of a pattern and a name: {error}"
    return None


def _compare(restore: Any, tree: StoredTree, shapes: StateShapes) -> CheckpointFit:
    from flax import traverse_util

    ours = {leaf.path: leaf.shape for leaf in shapes.leaves}
    if tree.layout is StoredLayout.TENSORFLOW:
        ours = {name: shape for name, shape in ours.items() if name.startswith(_TARGET)}
    stored: Mapping[str, StoredArray] = tree.arrays
    try:
        for transform in getattr(restore, "state_transformation_fns", ()):
            changed = transform(*(traverse_util.unflatten_dict(tree, sep="/") for tree in (stored, ours)))
            stored = traverse_util.flatten_dict(changed, sep="/")
    except ValueError as error:
        return CheckpointFit(tree, bad_map=str(error).split("Must be one of:")[0].strip())
    ordered = sorted(ours, key=lambda name: not name.startswith(_TARGET))
    missing = tuple(name for name in ordered if name not in stored)
    different = tuple((n, stored[n].shape, ours[n]) for n in ordered if n in stored and stored[n].shape != ours[n])
    filled = getattr(restore, "fallback_to_scratch", False)
    return CheckpointFit(
        tree=tree,
        different=different,
        missing=() if filled else missing,
        from_scratch=missing if filled else (),
        left_out=tuple(name for name in stored if name.startswith(_TARGET) and name not in ours),
        unwanted=tuple(name for name in shapes.empty if any(held.startswith(f"{name}/") for held in stored)),
        same=len(ours) - len(different) - len(missing),
    )


def _foreign_manager(restore: Any) -> str | None:
    """Returns which code of the user's own reads the checkpoint, so that it cannot be judged."""
    manager = getattr(restore, "checkpoint_manager_cls", None)
    return None if manager is None or _is_runtimes(manager) else f"it is restored by {_name(manager)}"


def _foreign_transform(restore: Any) -> str | None:
    """Returns which code of the user's own decides what is restored, so that it cannot be compared."""
    transforms = getattr(restore, "state_transformation_fns", ())
    own = next((transform for transform in transforms if not _is_assignment_map(transform)), None)
    return None if own is None else f"its tree is changed by {_name(own)}"


def _assignment_maps(restore: Any) -> list[Sequence[tuple[str, str | None]]]:
    """Returns the assignment maps of T5X's RestoreCheckpointConfig, in the order in which T5X applies them.

    What the user's own transformations do in addition is not known here.
    """
    transforms = getattr(restore, "state_transformation_fns", ())
    maps = [t for t in transforms if isinstance(t, functools.partial) and _is_assignment_map(t)]
    return [transform.keywords.get("assignment_map", ()) for transform in maps]


def checkpoint_names(restore: Any, names: Iterable[str]) -> dict[str, str]:
    """Returns the names that the arrays of a train state have in the checkpoint, by the config's assignment maps.

    Args:
      restore: T5X's RestoreCheckpointConfig.
      names: the names of the train state's arrays.

    Returns:
      The names by the train state's names. An array that the maps drop keeps its name: the checkpoint may have it.
    """
    found = {name: name for name in names}
    for assignments in reversed(_assignment_maps(restore)):  # the first map reads the checkpoint itself
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
