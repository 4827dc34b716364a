"""CKP26: what an interruption costs a training run whose MODEL_DIR is in a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.findings.examples import training
from t5x_harness.findings.rule import Found, Mistake
from t5x_harness.plan.rule import finds
from t5x_harness.spec import Severity

if TYPE_CHECKING:
    from t5x_harness.plan.planned import Planned


CKP26 = Mistake(
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


@finds(CKP26)
def interrupted_in_bucket(plan: Planned) -> Iterator[Found]:
    """Finds training that saves checkpoints with orbax at gs://."""
    from t5x_harness.resolve.output_folder import model_dir

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
