"""CKP22: what orbax removes in a bucket because it takes it for unfinished checkpoints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from t5x_harness.findings import examples
from t5x_harness.findings.examples import training
from t5x_harness.findings.rule import Found, Mistake
from t5x_harness.plan.rule import finds
from t5x_harness.spec import Mode, Severity

if TYPE_CHECKING:
    from t5x_harness.plan.planned import Planned

_CHECKPOINT = re.compile(r"checkpoint_\d+(\.orbax-checkpoint-tmp-.+)?")
_COMMITTED = "commit_success.txt"
_MOST_NAMED = 3
_LEFT = {**examples.FILES, "buckets/my-bucket/first/train/events.out.tfevents.1": ""}


CKP22 = Mistake(
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


@finds(CKP22)
def removed_folder(plan: Planned) -> Iterator[Found]:
    """Finds a folder at gs:// that a checkpoint manager of orbax's is going to clear up."""
    from t5x_harness.resolve.output_folder import local_copy, model_dir

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
    yield Found(
        f"{folder} holds {', '.join(names[:_MOST_NAMED])}{more}, without {_COMMITTED}: T5X has orbax remove such "
        f"folders at gs:// as unfinished checkpoints, {when}",
        key,
        _fix(plan, local),
        severity=Severity.ERROR if is_lost else Severity.WARNING,
    )


def _removed(folder: Path) -> list[str]:
    """Returns the folders that orbax would remove, except its own checkpoints that really are unfinished."""
    return [
        path.name
        for path in sorted(folder.iterdir())
        if path.is_dir()
        and not (path / _COMMITTED).exists()
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
