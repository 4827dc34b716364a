"""CKP22, CKP24, CKP26 and CKP31: folders and state that orbax removes, loses or cannot restore when a job restarts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t5x_harness.buckets.checkpoints import is_committed
from t5x_harness.buckets.folders import COMMITTED, LocalFolder
from t5x_harness.findings.rule import FILES, Found, Rule, training
from t5x_harness.resolve.output_folder import JobOutputFolder, local_copy, model_dir
from t5x_harness.spec import Mode, Severity
from t5x_harness.upstream.orbax import takes_for_bucket

if TYPE_CHECKING:
    from t5x_harness.plan.planned import Planned

_CHECKPOINT = re.compile(r"checkpoint_\d+(\.orbax-checkpoint-tmp-.+)?")
_MOST_NAMED = 3
_UNFINISHED = {**FILES, "buckets/my-bucket/first/checkpoint_500/state/d": ""}
_LEFT = {**FILES, "buckets/my-bucket/first/train/events.out.tfevents.1": ""}


@Rule(
    "CKP26",
    "what a restart at gs:// loses",
    severity=Severity.NOTE,
    why=(
        "A job that is interrupted goes on from its last checkpoint. At gs:// there is more to it. If it was saving, "
        "T5X takes the half-written checkpoint for the latest one and the first restart dies; orbax has removed it by "
        "then, so the second one goes on. Each restart also has orbax remove the TensorBoard folders in MODEL_DIR, and "
        "the losses of before are gone. And an evaluation that was due with the last checkpoint and did not come to "
        "its end is never made later."
    ),
    bad=training("MODEL_DIR = 'gs://my-bucket/first'", at="MODEL_DIR"),
    good=training("MODEL_DIR = '/data/first'"),
)
def interrupted_in_bucket(plan: Planned) -> Iterator[Found]:
    """Finds training that saves checkpoints with orbax to gs://."""
    folder = model_dir(plan.config)
    if folder is None or not folder.path.startswith("gs://") or not plan.uses_orbax:
        return
    save = plan.save
    if save is not None and save.period:
        yield Found(
            f"a restart of this run removes train and training_eval in {folder.path}, with the losses of before; the "
            "first restart after an interrupted save dies, and the next one goes on",
            folder.key,
            "let the job restart more than once, and copy the event files elsewhere if you need them",
        )


@Rule(
    "CKP22",
    "folders in a bucket that orbax removes",
    severity=Severity.WARNING,
    why=(
        "At gs://, orbax takes every folder without a file `commit_success.txt` for a checkpoint that was not "
        "finished, and T5X has it clear up: in MODEL_DIR when it trains, in what it restores when it evaluates or "
        "infers. The TensorBoard folders of an earlier job go, its predictions, checkpoints in T5X's older layout; and "
        "where one of those is restored, its arrays. An error where the checkpoint to be evaluated goes itself, as in "
        "mode 'latest' or 'all'. Seen in buckets that `gcs_root` gives."
    ),
    bad=training("MODEL_DIR = 'gs://my-bucket/first'", files=_LEFT, at="MODEL_DIR"),
    good=training("MODEL_DIR = 'gs://my-bucket/second'", files=_LEFT),
)
def removed_folder(plan: Planned) -> Iterator[Found]:
    """Finds a gs:// folder from which one of orbax's checkpoint managers is going to remove folders."""
    key, folder = plan.start.key, plan.start.path
    if plan.config.mode is Mode.TRAIN:
        written = model_dir(plan.config)
        key, folder = (written.key, written.path) if written else (None, None)
    managed = folder is not None and folder.startswith("gs://") and plan.uses_orbax
    local = local_copy(folder) if folder and managed else None
    names = _removed(local) if local is not None and local.is_dir() else []
    if local is None or not names:
        return
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    trains, restored = plan.config.mode is Mode.TRAIN, Path(plan.start.checkpoint or "").name
    when = "before it saves" if trains else "while it restores"
    if is_lost := not trains and restored in names:
        when += f" {restored}, which is one of them"
    message = (
        f"{folder} holds {', '.join(names[:_MOST_NAMED])}{more}, without {COMMITTED}: T5X has orbax remove such "
        f"folders at gs:// as unfinished checkpoints, {when}"
    )
    yield Found(message, key, _fix(plan, local), severity=Severity.ERROR if is_lost else Severity.WARNING)


@Rule(
    "CKP31",
    "checkpoint in a bucket without its commit file",
    why=(
        "At gs://, orbax writes `commit_success.txt` last. A checkpoint without it was not finished, or was copied by "
        "hand without this file. T5X takes the newest folder anyway: the job stops with `Metadata file (named "
        "_METADATA) does not exist` or `Found incomplete checkpoint`, and orbax removes the folder from MODEL_DIR, so "
        "that the next start silently goes on from an older one. Versions of orbax that take /gcs/ for a bucket do the "
        "same there. Seen in buckets that `gcs_root` gives."
    ),
    bad=training("MODEL_DIR = 'gs://my-bucket/first'", files=_UNFINISHED, at="MODEL_DIR"),
    good=training("MODEL_DIR = 'gs://my-bucket/second'", files=_UNFINISHED),
)
def uncommitted_checkpoint(plan: Planned) -> Iterator[Found]:
    """Finds checkpoints in orbax layout that orbax takes for unfinished: in MODEL_DIR, or the one to restore."""
    written = model_dir(plan.config)
    if written is not None and takes_for_bucket(written.path) and plan.uses_orbax:
        yield from _uncommitted_in(written)
    start = plan.start
    if not start.resumes and plan.uses_orbax and (local := unfinished_in_bucket(start.checkpoint)):
        message = f"{start.checkpoint} has no {COMMITTED}: T5X stops with `Found incomplete checkpoint`"
        yield Found(message, start.key, _how_to_commit(str(start.checkpoint), local) or "restore another checkpoint")


def unfinished_in_bucket(checkpoint: str | None) -> Path | None:
    """Returns where a checkpoint in a bucket is on this machine's disk if orbax takes it for unfinished."""
    local = local_copy(checkpoint) if checkpoint is not None and takes_for_bucket(checkpoint) else None
    return local if local is not None and _is_uncommitted(local) else None


def _uncommitted_in(folder: JobOutputFolder) -> Iterator[Found]:
    """Yields the finding for the newest checkpoint in MODEL_DIR that has no commit file."""
    from t5x_harness.plan.checkpoint_source import checkpoint_steps

    local, steps = local_copy(folder.path), checkpoint_steps(folder.path)
    wrong = [step for step in steps if local is not None and _is_uncommitted(local / f"checkpoint_{step}")]
    if local is None or not wrong:
        return
    name = f"checkpoint_{wrong[-1]}"
    older = [step for step in steps if step not in wrong]
    after = f"goes on from checkpoint_{older[-1]}" if older else "begins anew"
    is_newest = wrong[-1] == steps[-1]
    remove = f"gcloud storage rm -r {folder.path}/{name}; T5X then {after}"
    then = f"this start of the job dies of it, and the next one {after}" if is_newest else "nothing says so"
    yield Found(
        f"{folder.path}/{name} has no {COMMITTED}, so orbax removes it as unfinished; {then}",
        folder.key,
        _how_to_commit(f"{folder.path}/{name}", local / name)
        or f"if no other job is saving there, remove it first: {remove}",
        severity=Severity.ERROR if is_newest else Severity.WARNING,
    )


def _is_uncommitted(checkpoint: Path) -> bool:
    return (checkpoint / "state").is_dir() and not (checkpoint / COMMITTED).exists()


def _how_to_commit(path: str, local: Path) -> str:
    """Returns how to mark a checkpoint as finished that was written to its end; empty if it was not."""
    if not is_committed(LocalFolder(local.parent), local.name):
        return ""
    create = f"touch {COMMITTED} && gcloud storage cp {COMMITTED} {path}/"
    return f"it was written to its end, and copied without this file: {create}"


def _removed(folder: Path) -> list[str]:
    """Returns the folders that orbax would remove, except its own checkpoints that are really unfinished."""
    return [
        path.name
        for path in sorted(folder.iterdir())
        if path.is_dir()
        and not (path / COMMITTED).exists()
        and (not _CHECKPOINT.fullmatch(path.name) or _is_older_layout(path))
    ]


def _is_older_layout(checkpoint: Path) -> bool:
    return (checkpoint / "checkpoint").is_file()


def _fix(plan: Planned, folder: Path) -> str:
    if plan.config.mode is Mode.TRAIN:
        return "use another MODEL_DIR, or copy them elsewhere first"
    if _is_older_layout(folder):
        return "bind use_orbax = False, which reads this layout and removes nothing"
    return "restore one checkpoint_N in mode 'specific', or copy them elsewhere first"


_FROZEN = """from flax import traverse_util
from t5x import adafactor, optimizers


def decoder_alone():
    decoder = traverse_util.ModelParamTraversal(lambda path, _: "decoder" in path)
    rules = adafactor.standard_logical_factor_rules()
    return optimizers.MultiOptimizer([(decoder, adafactor.Adafactor(logical_factor_rules=rules))])
"""
_FREEZING = (
    "import freezing",
    "from t5x import models",
    "models.EncoderDecoderModel.optimizer_def = @freezing.decoder_alone()",
)
_FILES = {**FILES, "freezing.py": _FROZEN}


@Rule(
    "CKP24",
    "optimizer state that orbax cannot restore",
    why=(
        "A MultiOptimizer keeps nothing for parameters that none of its traversals takes. T5X saves such a state with "
        "orbax and cannot read it back: the job trains to its end, unless it is interrupted once. Then each restart "
        "fails with `NOT_FOUND: Error opening … driver`. The older layout can be read back."
    ),
    bad=training(*_FREEZING, files=_FILES, at="models.EncoderDecoderModel"),
    good=training(*_FREEZING, "train_script.train.use_orbax = False", files=_FILES),
)
def partial_state(plan: Planned) -> Iterator[Found]:
    """Finds a run that saves state for only some parameters, or starts from a checkpoint with state for more."""
    if plan.config.mode is not Mode.TRAIN or plan.shapes is None or not plan.shapes.empty:
        return
    if plan.fit is not None and plan.fit.unwanted:
        yield Found(
            f"the checkpoint {plan.start.checkpoint} holds state for {_parameters(plan.fit.unwanted)}, for which "
            "the optimizer keeps none: T5X cannot fit the one into the other",
            plan.start.key,
            "drop the checkpoint's: assignment_map = [(r'state/param_states.*', None)] and fallback_to_scratch = True",
        )
    save = plan.save
    if not plan.uses_orbax or save is None or not save.period:
        return
    yield Found(
        f"the optimizer keeps no state for {_parameters(plan.shapes.empty)}: T5X saves that with orbax and cannot "
        "restore it, so the first restart of the job is its end",
        plan.config.owner(plan.config.find("optimizer_def")),
        f"bind {plan.config.owner_of('use_orbax').short} = False, or give every parameter an optimizer, such as "
        "one whose learning rate is 0",
    )


def _parameters(names: Sequence[str]) -> str:
    first, *others = (name.removeprefix("state/param_states/") for name in names)
    return f"{first} and {len(others)} more parameters" if others else first
