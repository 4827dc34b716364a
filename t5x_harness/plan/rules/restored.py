"""CKP04 to CKP08, CKP17 to CKP19, CKP27 and SEQ11: checkpoints and settings that T5X cannot restore."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from t5x_harness.findings.rule import FILES, Example, Found, Rule, restored_from, trained, training
from t5x_harness.lint.rules.restoring import CKP04, CKP05, CKP17, CKP18, CKP19
from t5x_harness.plan.rules.restarts import unfinished_in_bucket
from t5x_harness.spec import Mode, Severity

if TYPE_CHECKING:
    from t5x_harness.plan.planned import Planned


_PATH = "utils.RestoreCheckpointConfig.path"
_NARROW = {"model/checkpoint_1000": trained("network.T5Config.emb_dim = 16")}


def _restoring(*lines: str, **parts: Any) -> Example:
    """Returns an example of training that starts from a checkpoint, which by default has the same config."""
    written = {"model/checkpoint_1000": trained()}
    return training(*lines, *restored_from("model/checkpoint_1000"), **{"checkpoints": written, **parts})


def _start_rule(mistake: Rule, name: str) -> Rule:
    """Makes the rule for one problem of a path that should be a checkpoint to start from."""

    def check(plan: Planned) -> Iterator[Found]:
        problem = plan.start.problem
        if problem is not None and problem.code == mistake.code:
            yield Found(problem.message, plan.start.key, problem.fix, severity=problem.severity)

    return dataclasses.replace(mistake, check=check, name=name)


missing_checkpoint = _start_rule(CKP04, "MissingCheckpoint")
path_against_mode = _start_rule(CKP05, "PathAgainstMode")


CKP08 = Rule(
    "CKP08",
    "checkpoint of orbax where T5X's older layout is read",
    why="T5X says `Path is not a valid T5X checkpoint`, or names a version 0 that the config does not name.",
    bad=_restoring("train_script.train.use_orbax = False", at=_PATH),
    good=_restoring(),
)

other_layout = _start_rule(CKP08, "OtherLayout")


@Rule(
    "CKP27",
    "checkpoint that is damaged",
    why=(
        "A copy that was cut off, or a save that was: T5X stops with an error of msgpack, tensorstore or orbax, which "
        "names no checkpoint. All arrays that the run restores are opened, and the small ones read; the large ones "
        "may be damaged yet. A shrunk run has a stand-in for the checkpoint, and would not notice."
    ),
    bad=_restoring(files={**FILES, "model/checkpoint_1000/checkpoint": "cut off"}, checkpoints={}, at=_PATH),
    good=_restoring(),
)
def damaged_checkpoint(plan: Planned) -> Iterator[Found]:
    """Finds unreadable metadata, or the first array that cannot be read."""
    from t5x_harness.plan.checkpoint_source import checkpoint_steps

    if plan.fit is not None and plan.fit.damage and not unfinished_in_bucket(plan.start.checkpoint):
        message = f"the checkpoint {plan.start.checkpoint} is damaged: {plan.fit.damage}"
        fix = "copy it again from where it was written, or name another checkpoint"
        if plan.start.resumes:
            older = [step for step in checkpoint_steps(str(plan.start.path)) if step != plan.start.step]
            then = f"goes on from checkpoint_{older[-1]}" if older else "begins anew"
            fix = f"copy it again from where it was written, or move it out of {plan.start.path}: T5X then {then}"
        yield Found(message, plan.start.key, fix)


@Rule(
    "CKP06",
    "checkpoint of a model of another size",
    why="Flax raises a shape error for one parameter after the checkpoint was read.",
    bad=_restoring(checkpoints=_NARROW, at=_PATH),
    good=_restoring("network.T5Config.emb_dim = 16", checkpoints=_NARROW),
)
def other_shapes(plan: Planned) -> Iterator[Found]:
    """Finds the first array whose shape differs from the model's."""
    fit = plan.fit
    if fit is None or not fit.different or fit.vocabulary_sizes:
        return
    path, stored, ours = fit.different[0]
    yield Found(
        f"{path} is {stored} in the checkpoint {plan.start.checkpoint} and {ours} in the model"
        f"{_more(len(fit.different) - 1, 'differ', fit.why_shapes_differ)}",
        plan.start.key,
        _other_checkpoint(plan, "of this model's size, or the model of the checkpoint's"),
        # What the optimizer does with its state in another shape is not known.
        severity=Severity.WARNING if fit.is_restored else Severity.ERROR,
    )


@Rule(
    "SEQ11",
    "checkpoint of a model with another vocabulary size",
    why=(
        "The embedding has a row for each token, often rounded up to a multiple of 128: 32000 pieces and 100 extra ids "
        "make 32128 rows. T5X finds the difference after the checkpoint was read."
    ),
    bad=_restoring("network.T5Config.vocab_size = 512", at="network.T5Config.vocab_size = 512"),
    good=_restoring("network.T5Config.vocab_size = 384"),
)
def other_vocabulary(plan: Planned) -> Iterator[Found]:
    """Finds a checkpoint that differs from the model only in the number of tokens."""
    fit = plan.fit
    sizes = fit.vocabulary_sizes if fit is not None else None
    if sizes is None:
        return
    bound = plan.config.find("vocab_size") or plan.config.find("num_embeddings")
    key = plan.config.owner(bound) if bound else plan.start.key
    yield Found(
        f"the checkpoint {plan.start.checkpoint} has {sizes[0]} tokens, and the model {sizes[1]}",
        key,
        f"set {bound.short if bound else 'the vocabulary size'} to {sizes[0]}, or use a checkpoint of {sizes[1]} "
        "tokens",
    )


@Rule(
    "CKP07",
    "checkpoint of a model of another structure",
    why=(
        "Where the checkpoint lacks something, T5X stops with a pytree structure error after it read the tree. Where "
        "it has more, as of a model with more layers, T5X silently leaves the rest out."
    ),
    bad=_restoring("network.T5Config.num_decoder_layers = 3", at=_PATH),
    good=_restoring(),
)
def other_tree(plan: Planned) -> Iterator[Found]:
    """Finds arrays that the checkpoint lacks, or else, as a warning, arrays that the model does not have."""
    fit = plan.fit
    if fit is None:
        return
    if fit.bad_map:
        checkpoint = plan.start.checkpoint or plan.start.path
        message = f"the assignment_map does not fit the checkpoint {checkpoint}: {fit.bad_map}"
        fix = "correct the pattern, or the name in the checkpoint that it leads to"
        yield Found(message, plan.restore_key("assignment_map"), fix)
    elif fit.dropped:
        yield Found(
            f"the assignment_map drops {fit.dropped[0]}{_more(len(fit.dropped) - 1, 'are dropped')} of the "
            f"checkpoint {plan.start.checkpoint}, and fallback_to_scratch, which makes new values, is not set",
            plan.restore_key("assignment_map"),
            "set fallback_to_scratch = True, or take out of the assignment_map what the model needs",
        )
    elif fit.restores_nothing:
        yield Found(
            f"the assignment_map drops every array of the checkpoint {plan.start.checkpoint}, and orbax stops where it "
            "has nothing to restore",
            plan.restore_key("assignment_map"),
            "name no checkpoint, to start from scratch, or take out of the assignment_map what is to be restored",
        )
    elif fit.missing:
        yield Found(
            f"the checkpoint {plan.start.checkpoint} has no {fit.missing[0]}"
            f"{_more(len(fit.missing) - 1, 'are missing', fit.why_missing)}",
            plan.start.key,
            _other_checkpoint(plan, "of this architecture and number of layers")
            if any(name.startswith("target/") for name in fit.missing)
            else "use the optimizer that it was written with, or drop its state: assignment_map = "
            "[(r'state/param_states.*', None)] and fallback_to_scratch = True",
        )
    elif fit.left_out and not fit.different:
        yield Found(
            f"T5X leaves out what the model does not have of the checkpoint {plan.start.checkpoint}: "
            f"{', '.join(fit.left_out[:2])}{_more(len(fit.left_out) - 2, 'are left out')}",
            plan.start.key,
            _other_checkpoint(plan, "of this architecture and number of layers, or that model"),
            severity=Severity.WARNING,
        )


def _other_checkpoint(plan: Planned, which: str) -> str:
    if plan.start.resumes:
        return f"use a new folder for this model: T5X goes on from {plan.start.path} whatever else the config names"
    return f"use the checkpoint {which}"


def _more(number: int, what: str, why: str | None = None) -> str:
    """Returns words for the number of further arrays, and their explanation."""
    return (f", and {number} more {what}" if number > 0 else "") + (f": {why}" if why else "")


@CKP17
def fallback_incomplete(plan: Planned) -> Iterator[Found]:
    """Finds ``fallback_to_scratch`` without a transformation, or without a seed."""
    restore, config = plan.start.restore, plan.config
    if restore is None or not restore.fallback_to_scratch:
        return
    key = plan.restore_key("fallback_to_scratch")
    if not restore.state_transformation_fns:
        message = "fallback_to_scratch needs an assignment_map or state_transformation_fns, and there is neither"
        yield Found(message, key, "map what shall be new to None in assignment_map, or drop fallback_to_scratch")
    elif config.mode is not Mode.TRAIN and config.value(config.owner_of("fallback_init_rng")) is None:
        message = "fallback_to_scratch needs a seed, and fallback_init_rng is None"
        yield Found(message, key, f"bind {config.entry.removeprefix('__main__.')}.fallback_init_rng = 0")


@CKP18
def transformed_layout(plan: Planned) -> Iterator[Found]:
    """Finds a checkpoint that the config changes during the restore in a way that its layout does not allow."""
    from t5x_harness.plan.stored_tree import StoredLayout, layout_of

    start = plan.start
    if start.restore is None or start.checkpoint is None or not start.reachable:
        return
    if start.restore.state_transformation_fns and layout_of(start.checkpoint) is StoredLayout.TENSORFLOW:
        message = f"{start.checkpoint} is a TensorFlow checkpoint, which T5X restores only as it is"
        fix = "convert it to a T5X checkpoint first, or drop assignment_map and state_transformation_fns"
        yield Found(message, plan.restore_key("assignment_map"), fix)
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
    """Returns the arrays that the config takes from a different name in a checkpoint in orbax layout."""
    from t5x_harness.plan.checkpoint_fit import checkpoint_names
    from t5x_harness.plan.stored_tree import StoredLayout

    tree = plan.fit.tree if plan.fit is not None else None
    if tree is None or tree.layout is not StoredLayout.ORBAX or plan.shapes is None:
        return {}
    names = checkpoint_names(plan.start.restore, [leaf.path for leaf in plan.shapes.leaves])
    return {name: source for name, source in names.items() if name != source and source in tree.arrays}


@CKP19
def restore_mode(plan: Planned) -> Iterator[Found]:
    """Finds several checkpoints for one training run or for orbax, and checkpoint managers of two kinds or of none."""
    yield from _no_manager(plan)
    if plan.config.mode is not Mode.TRAIN:
        yield from _list(plan)
        return
    checkpoints = plan.config.build("checkpoint_cfg")
    save, restore = getattr(checkpoints, "save", None), getattr(checkpoints, "restore", None)
    if restore is None:
        return
    if restore.mode == "all":
        message = "training does not take restore mode 'all'"
        yield Found(message, plan.restore_key("mode"), "write 'latest', or 'specific' and one checkpoint")
    if not isinstance(restore.path, str) and restore.path:
        message = f"training restores one checkpoint, and the path is a list of {len(restore.path)}"
        yield Found(message, plan.restore_key("path"), "write one path without brackets")
    yield from _managers(plan, save, restore)


def _no_manager(plan: Planned) -> Iterator[Found]:
    """Yields a manager that does not take what T5X calls it with, as that of the older layout."""
    manager = getattr(plan.start.restore, "checkpoint_manager_cls", None)
    if not plan.uses_orbax or not callable(manager):
        return
    try:
        # Gin wraps the calls of a class, which then seem to take anything.
        made = getattr(manager, "__init__" if isinstance(manager, type) else "__call__")
        taken = inspect.signature(made).parameters.values()
    except (TypeError, ValueError):  # of a function in C
        return
    if not any(each.name == "directory" or each.kind is each.VAR_KEYWORD for each in taken):
        yield Found(
            f"checkpoint_manager_cls is {getattr(manager, '__name__', manager)}, which takes no directory, and T5X "
            "gives it one",
            plan.restore_key("checkpoint_manager_cls"),
            "do not bind it: without orbax, which use_orbax = False turns off, T5X asks for no manager",
        )


def _list(plan: Planned) -> Iterator[Found]:
    restore = plan.config.build("restore_checkpoint_cfg")
    path = getattr(restore, "path", None)
    evaluates = plan.config.mode is Mode.EVAL
    # With an empty list, evaluation uses no manager.
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
        return  # these settings restore nothing
    managers = restore.checkpoint_manager_cls, save.checkpoint_manager_cls
    if managers[0] is not managers[1] and plan.uses_orbax:
        theirs, ours = (getattr(manager, "__name__", manager) for manager in managers)
        yield Found(
            f"checkpoints are restored with {theirs} and saved with {ours}: T5X wants the same checkpoint_manager_cls "
            "for both",
            plan.restore_key("checkpoint_manager_cls"),
            "bind both to the same class",
        )
