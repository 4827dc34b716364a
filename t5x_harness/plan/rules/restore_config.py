"""CKP17 to CKP19: restore settings that T5X refuses, with every value computed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from t5x_harness.findings.rule import Found
from t5x_harness.lint.rules.checkpoint_mode import CKP19
from t5x_harness.lint.rules.partial_restore import CKP17, CKP18
from t5x_harness.plan.rule import finds
from t5x_harness.spec import Mode

if TYPE_CHECKING:
    from t5x_harness.plan.planned import Planned


@finds(CKP17)
def fallback_incomplete(plan: Planned) -> Iterator[Found]:
    """Finds ``fallback_to_scratch`` without a transformation, or without a seed."""
    restore, config = plan.start.restore, plan.config
    if restore is None or not restore.fallback_to_scratch:
        return
    key = plan.restore_key("fallback_to_scratch")
    if not restore.state_transformation_fns:
        yield Found(
            "fallback_to_scratch needs an assignment_map or state_transformation_fns, and there is neither",
            key,
            "map what shall be new to None in assignment_map, or drop fallback_to_scratch",
        )
    elif config.mode is not Mode.TRAIN and config.value(config.owner_of("fallback_init_rng")) is None:
        yield Found(
            "fallback_to_scratch needs a seed, and fallback_init_rng is None",
            key,
            f"bind {config.entry.removeprefix('__main__.')}.fallback_init_rng = 0",
        )


@finds(CKP18)
def transformed_layout(plan: Planned) -> Iterator[Found]:
    """Finds a checkpoint that is to be changed while it is restored, in a way that its layout does not allow."""
    from t5x_harness.plan.stored_tree import StoredLayout, layout_of

    start = plan.start
    if start.restore is None or start.checkpoint is None or not start.reachable:
        return
    if start.restore.state_transformation_fns and layout_of(start.checkpoint) is StoredLayout.TENSORFLOW:
        yield Found(
            f"{start.checkpoint} is a TensorFlow checkpoint, which T5X restores only as it is",
            plan.restore_key("assignment_map"),
            "convert it to a T5X checkpoint first, or drop assignment_map and state_transformation_fns",
        )
    elif renamed := _renamed(plan):
        (name, source), *others = renamed.items()
        more = f", and {len(others)} more" if others else ""
        yield Found(
            f"the assignment_map gives {name} the checkpoint's {source}{more}, and {start.checkpoint} is in orbax "
            "layout, of which T5X reads every array under its name in the model",
            plan.restore_key("assignment_map"),
            "start from a checkpoint in T5X's older layout (use_orbax = False where it is written), or keep the names",
        )


def _renamed(plan: Planned) -> dict[str, str]:
    """Returns the arrays that the config takes from another name of a checkpoint in orbax layout."""
    from t5x_harness.plan.checkpoint_fit import checkpoint_names
    from t5x_harness.plan.stored_tree import StoredLayout

    tree = plan.fit.tree if plan.fit is not None else None
    if tree is None or tree.layout is not StoredLayout.ORBAX or plan.shapes is None:
        return {}
    names = checkpoint_names(plan.start.restore, [leaf.path for leaf in plan.shapes.leaves])
    return {name: source for name, source in names.items() if name != source and source in tree.arrays}


@finds(CKP19)
def restore_mode(plan: Planned) -> Iterator[Found]:
    """Finds several checkpoints for one training run or for orbax, and checkpoint managers of two kinds."""
    if plan.config.mode is not Mode.TRAIN:
        yield from _list(plan)
        return
    checkpoints = plan.config.build("checkpoint_cfg")
    save, restore = getattr(checkpoints, "save", None), getattr(checkpoints, "restore", None)
    if restore is None:
        return
    if restore.mode == "all":
        yield Found(
            "training does not take restore mode 'all'",
            plan.restore_key("mode"),
            "write 'latest', or 'specific' and one checkpoint",
        )
    if not isinstance(restore.path, str) and restore.path:
        yield Found(
            f"training restores one checkpoint, and the path is a list of {len(restore.path)}",
            plan.restore_key("path"),
            "write one path without brackets",
        )
    yield from _managers(plan, save, restore)


def _list(plan: Planned) -> Iterator[Found]:
    restore = plan.config.build("restore_checkpoint_cfg")
    path = getattr(restore, "path", None)
    evaluates = plan.config.mode is Mode.EVAL
    # Of an empty list, evaluation asks no manager for anything.
    if path is None or isinstance(path, str) or (evaluates and not (path and plan.uses_orbax)):
        return
    use_orbax = plan.config.owner_of("use_orbax").short
    yield Found(
        f"{'evaluation with orbax' if evaluates else 'inference'} restores one path, and the path is a list of "
        f"{len(path)}",
        plan.restore_key("path"),
        "write one path without brackets" + (f", or bind {use_orbax} = False" if evaluates else ""),
    )


def _managers(plan: Planned, save: Any, restore: Any) -> Iterator[Found]:
    start = plan.start
    if save is None or start.restore is None or start.path is None:
        return  # nothing is restored with these settings
    theirs, ours = restore.checkpoint_manager_cls, save.checkpoint_manager_cls
    if theirs is not ours and plan.uses_orbax:
        yield Found(
            f"checkpoints are restored with {_name(theirs)} and saved with {_name(ours)}: T5X wants the same "
            "checkpoint_manager_cls for both",
            plan.restore_key("checkpoint_manager_cls"),
            "bind both to the same class",
        )


def _name(constructor: Any) -> str:
    return str(getattr(constructor, "__name__", constructor))
