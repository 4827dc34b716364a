"""CKP04: checkpoints that are not there."""

from __future__ import annotations

from collections.abc import Iterator

from t5x_harness.findings import examples
from t5x_harness.lint.checkpoint_files import MOST_NAMED, missing_checkpoint
from t5x_harness.lint.rule import Context, Example, Rule
from t5x_harness.spec import Finding

_HEAD = examples.head("finetune")


class MissingCheckpoint(Rule):
    """A checkpoint that is neither in the user's bucket nor beside others of its run."""

    code = "CKP04"
    title = "checkpoint that does not exist"
    why = (
        "T5X asserts with the path as its whole message, half a minute into the job. What a bucket of yours "
        "(`gcs_root`) lacks is missing; of a folder of this machine that is only sure where other checkpoints are in "
        "it, as the machine of the job may have another."
    )
    bad = Example(
        _HEAD + f"INITIAL_CHECKPOINT_PATH = '{examples.FOLDER}/model/checkpoint_40'\n",
        files={"model/checkpoint_4/checkpoint": ""},
        at="INITIAL_CHECKPOINT_PATH",
    )
    good = Example(
        _HEAD + f"INITIAL_CHECKPOINT_PATH = '{examples.FOLDER}/model/checkpoint_4'\n",
        files={"model/checkpoint_4/checkpoint": ""},
    )

    def check(self, context: Context) -> Iterator[Finding]:
        missing = missing_checkpoint(context)
        if missing is None:
            return
        path = missing.path
        if missing.beside:
            listed = ", ".join(f"checkpoint_{step}" for step in missing.beside[-MOST_NAMED:])
            yield self.finding(f"there is no {path.value}; beside it are {listed}", path.at, "correct the step")
        else:
            yield self.finding(
                f"there is no {path.value}, and what a bucket of yours lacks is missing",
                path.at,
                "correct the path, or put the checkpoint into the bucket",
            )
