"""Each difference between a training that ran through and one that was killed is named by its cause."""

from pathlib import Path
from typing import Any

import pytest
from histories import history, life, state

from t5x_harness.resume.comparison import Comparison, Expected, compare, scalar_differences
from t5x_harness.resume.history import History
from t5x_harness.spec import Severity

EXPECTED = Expected(saved=2, first_step=0, last_step=4, saves_dataset=True)


@pytest.fixture
def reference(tmp_path: Path) -> History:
    return history(tmp_path, "reference", life(0, 4))


def compared(reference: History, resumed: History, again: History | None = None, **expected: Any) -> Comparison:
    given = Expected(**{**vars(EXPECTED), **expected})
    return compare(reference, resumed, given, lambda: again or reference)


def test_a_training_that_goes_on_as_it_was(tmp_path: Path, reference: History) -> None:
    made = compared(reference, history(tmp_path, "resumed", life(0, 3), life(2, 4)))
    assert (made.findings, made.not_checked) == ([], [])
    assert made.facts == {
        "went on from": "checkpoint_2; 1 step trained twice",
        "restored": "3 arrays, equal to those at step 2 to the bit",
        "examples": "trained twice: 0, never: 0",
        "compared": "the states of 2 steps after the restart, equal to the bit",
    }


def test_the_line_that_a_killed_process_did_not_finish_is_left_out(tmp_path: Path) -> None:
    read = history(tmp_path, "killed", life(0, 3), end='{"reached": 4, "sta')
    assert read.lives[0].reached == 3


def test_what_was_trained_after_the_checkpoint_is_lost(tmp_path: Path) -> None:
    read = history(tmp_path, "resumed", life(0, 3), life(2, 4, rows="other"))
    assert [rows[0] for rows in read.batches().values()] == ["row 0", "row 2", "other 4", "other 6"]


@pytest.mark.parametrize(
    ("second", "expected", "code", "says"),
    [
        (life(0, 4), {}, "RES01", "training went on from step 0, and checkpoint_2 was complete when it was killed"),
        (life(2, 4), {"saved": None}, "RES01", "step 2, and no checkpoint was complete when it was killed"),
        (
            life(2, 4, at_2=state(2, values=1)),
            {},
            "RES01",
            "training went on at step 2 with the values of step 1",
        ),
        (
            life(2, 4, at_2=state(2, slots="zero")),
            {},
            "RES02",
            "not restored as it was saved: 1 optimizer slot, zeros now: state/param_states/kernel/v (norm 1.5 "
            "before, 0 after)",
        ),
        (
            life(2, 4, at_2=state(2, other=" rounded", slots="t")),
            {},
            "RES02",
            "not restored as it was saved: 2 arrays: state/param_states/kernel/v (norm 1.5 in both), target/kernel "
            "(norm 4 in both)",
        ),
        (
            life(2, 4, rows="other"),
            {},
            "RES03",
            "the batch of step 2 is not the one that an uninterrupted training takes there, although "
            "utils.SaveCheckpointConfig.save_dataset is on: 4 examples are trained twice, 4 never",
        ),
        (
            life(2, 4, at_4=state(4, other="!")),
            {},
            "RES04",
            "from the same state and the same batches, the restarted training reached another state at step 4: 1 "
            "array, such as target/kernel (norm 6 in both)",
        ),
        (
            life(2, 6),
            {},
            "RES07",
            "training ended at step 6 after a restart, and at step 4 without one",
        ),
    ],
)
def test_a_difference_is_named_by_its_cause(
    tmp_path: Path, reference: History, second: list[dict[str, Any]], expected: dict[str, Any], code: str, says: str
) -> None:
    made = compared(reference, history(tmp_path, "resumed", life(0, 3), second), **expected)
    (finding,) = made.findings
    assert (finding.code, finding.severity) == (code, Severity.ERROR)
    assert says in finding.message
    assert finding.fix


def test_data_that_begins_anew_is_a_note_where_its_position_is_not_saved(tmp_path: Path, reference: History) -> None:
    resumed = history(tmp_path, "resumed", life(0, 3), [{**line, **again(line)} for line in life(2, 4)])
    made = compared(reference, resumed, saves_dataset=False)
    (note,) = made.findings
    assert (note.code, note.severity) == ("RES03", Severity.NOTE)
    assert note.message == "after a restart, the data begins anew: of 8 examples, 4 are trained twice and 4 never"
    assert note.fix.startswith("bind utils.SaveCheckpointConfig.save_dataset = True, for data from files or a cache")
    assert made.not_checked == ["the steps after a restart: they have other batches than without one"]


def test_the_batch_that_t5x_itself_loses_is_a_note(tmp_path: Path, reference: History) -> None:
    ahead = [
        {**line, "rows": [f"row {2 * line['step'] + n}" for n in (2, 3)]} if "rows" in line else line
        for line in life(0, 4)
    ]
    made = compared(reference, history(tmp_path, "resumed", life(0, 3), ahead), saved=0)
    (note,) = made.findings
    assert (note.code, note.severity) == ("RES03", Severity.NOTE)
    assert note.message.startswith("T5X itself loses a batch here: it saves checkpoint_0 when it has already taken the")
    assert made.facts["examples"] == "trained twice: 2, never: 2"


def again(line: dict[str, Any]) -> dict[str, Any]:
    """Returns the batch of a pipeline that began anew at step 2."""
    return {"rows": [f"row {2 * line['step'] - 4}", f"row {2 * line['step'] - 3}"]} if "rows" in line else {}


def test_a_training_that_differs_from_itself_is_not_blamed(tmp_path: Path, reference: History) -> None:
    resumed = history(tmp_path, "resumed", life(0, 3), life(2, 4, at_3=state(3, other="!"), at_4=state(4, other="!")))
    noisy = history(tmp_path, "again", life(0, 4, at_4=state(4, other="?")))
    made = compared(reference, resumed, noisy, hardware_rng=True)
    assert made.findings == []
    assert made.not_checked == [
        "the steps after a restart: without one, the same training differs from itself from step 4 on, as it uses the "
        "hardware RNG"
    ]


def test_data_that_does_not_repeat_is_named_before_anything_else(tmp_path: Path, reference: History) -> None:
    made = compared(reference, history(tmp_path, "resumed", life(0, 3, rows="clock"), life(0, 4)))
    (warning,) = made.findings
    assert (warning.code, warning.severity) == ("RES03", Severity.WARNING)
    assert warning.message == (
        "the data does not repeat: with the same seed, the batch of step 0 was another one in a second training, "
        "before it was killed"
    )


def test_parameters_that_are_saved_in_fewer_bits_are_not_compared(tmp_path: Path, reference: History) -> None:
    resumed = history(tmp_path, "resumed", life(0, 3), life(2, 4, at_2=state(2, other=" rounded")))
    made = compared(reference, resumed, save_dtype="bfloat16")
    assert made.findings == []
    assert made.not_checked == [
        "the steps after a restart: checkpoints are saved as bfloat16, so that the parameters that training goes on "
        "with are rounded"
    ]


def test_scalars_that_differ_are_named_except_times() -> None:
    wanted = {"train/loss": {1: 2.5, 2: float("nan")}, "train/timing/seconds": {1: 3.0}, "train/sum": {1: 1.0}}
    found = {"train/loss": {1: 2.25, 2: float("nan")}, "train/timing/seconds": {1: 9.0}}
    assert [text for _, _, text in scalar_differences(wanted, found)] == [
        "train/loss at step 1 is 2.5, and 2.25 after a restart",
        "train/sum at step 1 is 1, and missing after a restart",
    ]
