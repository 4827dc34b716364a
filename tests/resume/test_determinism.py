"""The first difference between two trainings is named with its place, both values, its likely cause and the fix."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from histories import history, life, state

from t5x_harness.fixtures.determinism import AssertDeterministic
from t5x_harness.resume.determinism import (
    Again,
    FirstDifference,
    Part,
    RecordedTraining,
    beginning,
    explained,
    first_difference,
    unseeded,
)
from t5x_harness.spec import (
    Assignment,
    BoundValue,
    Change,
    Finding,
    Location,
    Outcome,
    Reason,
    RunResult,
    RunSpec,
    Severity,
    Stage,
    StageResult,
)

METRICS = {"train/loss": {1: 2.0, 2: 1.5}, "train/timing/seconds": {1: 3.0}}


def training(
    tmp_path: Path, name: str, *lives: list[dict[str, Any]], metrics: Mapping[str, Mapping[int, float]] = METRICS
) -> RecordedTraining:
    return RecordedTraining(name, history(tmp_path, name, *(lives or (life(0, 4),))), metrics)


@pytest.fixture
def first(tmp_path: Path) -> RecordedTraining:
    return training(tmp_path, "first")


def result(*, bindings: Mapping[str, str] = {}, resume: StageResult | None = None) -> RunResult:
    bound = tuple(BoundValue(name, None, Assignment(value, Location("a.gin", 1))) for name, value in bindings.items())
    return RunResult(RunSpec(("a.gin",)), (resume,) if resume else (), bindings=bound)


def test_equal_trainings_have_no_difference(tmp_path: Path, first: RecordedTraining) -> None:
    assert first_difference(first, training(tmp_path, "again")) is None
    assert first_difference(first, training(tmp_path, "resumed", life(0, 3), life(2, 4))) is None


@pytest.mark.parametrize(
    ("lives", "expected"),
    [
        (
            [life(0, 4, at_0=state(0, other="!"))],
            (Part.START, 0, "target/kernel", "norm 2, digest kernel 0", "norm 2, digest kernel 0!"),
        ),
        ([life(0, 4, rows="other")], (Part.BATCH, 0, "example 0 of the batch", "row 0", "other 0")),
        (
            [life(0, 4, at_3=state(3, slots="t"), at_4=state(4, slots="t"))],
            (Part.STATE, 3, "state/param_states/kernel/v", "norm 1.5, digest s3", "norm 1.5, digest t3"),
        ),
        (
            [life(0, 4, at_3={**state(3), "target/new": ["new", 1.0]})],
            (Part.STATE, 3, "target/new", "missing", "there"),
        ),
        ([life(0, 3), life(2, 6)], (Part.END, 4, "the last step", "4", "6")),
    ],
    ids=["initial value", "batch", "slot", "new array", "last step"],
)
def test_the_first_difference(
    tmp_path: Path, first: RecordedTraining, lives: Sequence[list[dict[str, Any]]], expected: tuple[object, ...]
) -> None:
    found = first_difference(first, training(tmp_path, "other", *lives))
    assert found is not None
    assert (found.part, found.step, found.what, *found.values) == expected


def test_an_example_that_came_elsewhere_is_found_there(tmp_path: Path, first: RecordedTraining) -> None:
    shifted = [
        {**line, "rows": [f"row {2 * line['step'] + n}" for n in (1, 2)]} if "rows" in line else line
        for line in life(0, 4)
    ]
    found = first_difference(training(tmp_path, "other", shifted), first)
    assert found is not None
    assert found.moved == "example 1 of the batch of step 0"
    assert "another order: this one is example 1 of the batch of step 0 there" in explained(found, Again.SAME, result())


def test_metrics_are_compared_except_times_once_all_states_are_equal(tmp_path: Path, first: RecordedTraining) -> None:
    slow = {**METRICS, "train/timing/seconds": {1: 9.0}}
    assert first_difference(first, training(tmp_path, "slow", metrics=slow)) is None
    wrong = {"train/loss": {1: 2.0, 2: 1.25}}
    found = first_difference(first, training(tmp_path, "wrong", metrics=wrong))
    assert found == FirstDifference(Part.METRIC, 2, "train/loss", ("1.5", "1.25"))


def test_a_tolerance_is_for_values_and_never_for_batches(tmp_path: Path, first: RecordedTraining) -> None:
    near = training(tmp_path, "near", life(0, 4, at_3=state(3, other="!")), metrics={"train/loss": {1: 2.001, 2: 1.5}})
    assert first_difference(first, near) is not None
    assert first_difference(first, near, 1e-3) is None
    found = first_difference(first, near, 1e-4)
    assert found is not None
    assert (found.part, found.values) == (Part.METRIC, ("2", "2.001"))
    far = training(tmp_path, "far", life(0, 4, at_3=state(3, values=4)))
    found = first_difference(first, far, 1e-3)
    assert found is not None
    assert (found.step, found.what, found.values) == (3, "target/kernel", ("norm 5", "norm 6"))
    found = first_difference(first, training(tmp_path, "rows", life(0, 4, rows="other")), 0.5)
    assert found is not None
    assert found.part is Part.BATCH


def test_parameters_of_equal_norms_are_compared_by_value(first: RecordedTraining) -> None:
    values = {"w": np.array([3.0, 4.0]), "b": np.zeros(2)}
    turned = {**values, "w": np.array([4.0, 3.0])}
    one, other = (dataclasses.replace(first, parameters=(sorted(each), each.__getitem__)) for each in (values, turned))
    assert first_difference(one, one, 1e-3) is None
    found = first_difference(one, other, 1e-3)
    assert found == FirstDifference(Part.VALUES, 4, "target/w", ("3 at [0]", "4 there"))


def test_the_generator_of_the_hardware_is_named_by_the_binding_that_turns_it_off() -> None:
    moved = FirstDifference(Part.STATE, 1, "target/w", ("norm 1", "norm 2"))
    bound = result(bindings={"USE_HARDWARE_RNG": "True", "train.use_hardware_rng": "%USE_HARDWARE_RNG"})
    for again in (Again.SAME, Again.MESH):
        assert explained(moved, again, bound).endswith("fix: bind USE_HARDWARE_RNG = False")
        assert "USE_HARDWARE_RNG" not in explained(moved, again, result(bindings={"train.use_hardware_rng": "False"}))


def test_what_the_stage_resume_found_is_the_cause_of_a_difference_after_a_restart() -> None:
    note = Finding("RES03", Severity.NOTE, Stage.RESUME, "the data begins anew", fix="bind save_dataset = True")
    resume = StageResult(Stage.RESUME, Outcome.PASSED, (note,))
    difference = FirstDifference(Part.BATCH, 2, "example 0 of the batch", ("a", "b"))
    text = explained(difference, Again.RESUMED, result(resume=resume))
    assert text == "RES03: the data begins anew\nfix: bind save_dataset = True"


def test_trainings_on_other_hosts_are_compared_by_how_they_begin(tmp_path: Path, first: RecordedTraining) -> None:
    other = training(tmp_path, "pod", life(0, 4, rows="part of a host", at_1=state(1, other="!")))
    assert first_difference(beginning(first), beginning(other), 1e-4) is None
    found = first_difference(beginning(first), beginning(training(tmp_path, "bad", life(0, 4, at_0=state(9)))), 1e-4)
    assert found is not None
    assert (found.part, found.step) == (Part.START, 0)
    assert explained(found, Again.HOSTS, result()).startswith("likely cause: the initial values depend on the host")


def test_a_config_without_seeds_is_not_deterministic() -> None:
    seed = Change("RANDOM_SEED", "None", "0", Reason.REPEATABLE)
    generator = Change("USE_HARDWARE_RNG", "False", "True", Reason.REPEATABLE)
    train = StageResult(Stage.TRAIN, Outcome.PASSED, changes=(seed, generator))
    text = "RANDOM_SEED is not bound, so that T5X takes a seed from the clock\nfix: bind RANDOM_SEED = 0"
    assert unseeded(result(resume=train)) == text
    assert unseeded(result()) is None


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"repeats": 0}, "repeats must be a whole number of 1 or more, not 0"),
        ({"repeats": True}, "repeats must be a whole number of 1 or more, not True"),
        ({"meshes": "v3-8"}, r"meshes must be a list such as \(1, 2\) or \('v3-8',\), not 'v3-8'"),
        ({"meshes": 2}, "meshes must be a list"),
        ({"meshes": (0,)}, "meshes has 0, which names neither a number of partitions, nor a slice, nor a binding"),
        ({"tolerance": 0}, "tolerance must be a number above 0, not 0"),
        ({"tolerance": float("nan")}, "tolerance must be a number above 0, not nan"),
        ({"repeats": 1, "meshes": (), "resumed": False}, "there is nothing to compare"),
    ],
    ids=str,
)
def test_arguments_that_compare_nothing_are_refused(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(pytest.fail.Exception, match=f"^assert_deterministic: {says}"):
        AssertDeterministic(None)("a.gin", **arguments)  # type: ignore[arg-type]
