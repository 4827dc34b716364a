"""CKP04: checkpoints that are not there."""

from __future__ import annotations

from collections.abc import Iterator

from t5x_harness.findings import examples
from t5x_harness.findings.examples import restored_from, training
from t5x_harness.findings.rule import Found, Mistake
from t5x_harness.lint import checkpoint_files
from t5x_harness.lint.rule import Context, finds

_HEAD = examples.head("finetune")


CKP04 = Mistake(
    "CKP04",
    "checkpoint that does not exist",
    why=(
        "T5X asserts with the path as its whole message, half a minute into the job. What a bucket of yours "
        "(`gcs_root`) lacks is missing; of a folder of this machine that is only sure where other checkpoints are in "
        "it, as the machine of the job may have another."
    ),
    later=(
        "It is a warning if there is no other checkpoint beside it either: the machine of the job may have the path, "
        "and a stand-in takes its place here."
    ),
    bad=training(
        *restored_from("model/checkpoint_1001"),
        files={**examples.FILES, "model/checkpoint_1000/checkpoint": ""},
        at="utils.RestoreCheckpointConfig.path",
    ),
    good=training(*restored_from("model/checkpoint_1000"), checkpoints={"model/checkpoint_1000": examples.trained()}),
)


@finds(CKP04)
def missing_checkpoint(context: Context) -> Iterator[Found]:
    """Finds a checkpoint that is neither in the user's bucket nor beside others of its run."""
    missing = checkpoint_files.missing_checkpoint(context)
    if missing is None:
        return
    path = missing.path
    if missing.beside:
        listed = ", ".join(f"checkpoint_{step}" for step in missing.beside[-checkpoint_files.MOST_NAMED :])
        yield Found(f"there is no {path.value}; beside it are {listed}", path.at, "correct the step")
    else:
        yield Found(
            f"there is no {path.value}, and what a bucket of yours lacks is missing",
            path.at,
            "correct the path, or put the checkpoint into the bucket",
        )
