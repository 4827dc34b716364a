"""The faults of a campaign come from its seed, can come to the training, and can be replayed."""

import dataclasses

from t5x_harness.findings.stage_report import StageReport
from t5x_harness.resume.campaign import FaultOutcome, draw, summarize
from t5x_harness.resume.repeater import Repeatable
from t5x_harness.spec import Ending, Fault, Mode, Moment, Stage

TRAINING = Repeatable(
    mode=Mode.TRAIN,
    bindings=(),
    output="",
    address="",
    local="",
    is_in_bucket=False,
    standins="",
    embedding_rows=None,
    data_axis=1,
    examples=None,
    first_step=10,
    last_step=20,
    saves=(15, 20),
    evals=(12, 20),
)


def test_a_seed_draws_the_same_faults_again() -> None:
    assert draw(7, 50, TRAINING) == draw(7, 50, TRAINING)
    assert draw(7, 50, TRAINING)[:20] == draw(7, 20, TRAINING)
    assert draw(7, 50, TRAINING) != draw(8, 50, TRAINING)


def test_each_fault_can_come_to_the_training() -> None:
    faults = draw(0, 500, TRAINING)
    steps = {moment: {fault.at_step for fault in faults if fault.during is moment} for moment in Moment}
    every = set(range(10, 20))
    assert steps == {
        **dict.fromkeys((Moment.STEP, Moment.RESTORE, Moment.COMPILE), every),
        Moment.SAVE: {15, 20},
        Moment.COMMIT: {15, 20},
        Moment.INFER: set(),
        Moment.EVAL: {12},  # after the evaluation at the last step, no step is left to compare
    }
    assert {fault.how for fault in faults} == {*Ending}
    assert all(Fault.from_text(str(fault)) == fault for fault in faults)


def test_moments_that_a_training_lacks_are_not_drawn() -> None:
    faults = draw(0, 200, dataclasses.replace(TRAINING, saves=(), evals=()))
    assert {fault.during for fault in faults} == {Moment.STEP, Moment.COMPILE}


def test_an_inference_and_an_evaluation_have_moments_of_their_own() -> None:
    inference = dataclasses.replace(TRAINING, mode=Mode.INFER, first_step=0, last_step=2, saves=(), evals=())
    faults = draw(0, 200, inference)
    assert {fault.during for fault in faults} == {Moment.INFER, Moment.SAVE, Moment.COMMIT, Moment.RESTORE}
    assert {fault.at_step for fault in faults} == {0, 1}
    evaluation = dataclasses.replace(inference, mode=Mode.EVAL, last_step=1)
    assert {fault.during for fault in draw(0, 200, evaluation)} == {Moment.EVAL, Moment.RESTORE}


def test_a_mistake_is_reported_with_the_fault_that_shows_it() -> None:
    fine, wrong = StageReport(Stage.RESUME, exercised=2), StageReport(Stage.RESUME, exercised=1)
    wrong.find("RES02", "not restored as it was saved: 3 arrays", fix="look at assignment_map")
    save, step = Fault(15, Moment.SAVE), Fault(12, how=Ending.TERM)
    report = StageReport(Stage.RESUME)
    summarize([FaultOutcome(save, fine, lost=5), FaultOutcome(step, wrong)], 7, report)
    result = report.result()
    assert result.facts == (
        ("fault 1", "during=save,how=kill,at_step=15: equal, lost 5 steps"),
        ("fault 2", "during=step,how=term,at_step=12: RES02"),
        ("campaign", "2 faults of seed 7: 1 equal, 1 failed"),
    )
    (error,) = result.errors
    assert error.fix == "look at assignment_map; this fault again: --preempt during=step,how=term,at_step=12"
    assert result.exercised == 3
