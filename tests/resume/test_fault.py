"""A fault to order is read from text, from a marker's arguments, and refused with what there is."""

from typing import Any

import pytest

from t5x_harness.spec import Ending, Fault, Moment


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("save", Fault(during=Moment.SAVE)),
        ("during=commit, how=term", Fault(during=Moment.COMMIT, how=Ending.TERM)),
        ("at_step=3,how=stop,grace=0.5", Fault(3, how=Ending.STOP, grace=0.5)),
        ("host=2,on=v4-8", Fault(host=2, on="v4-8")),
        ("on=4", Fault(on="4")),
    ],
)
def test_a_fault_is_read_as_it_is_written(text: str, fault: Fault) -> None:
    assert Fault.from_text(text) == fault
    assert Fault.from_text(str(fault)) == fault
    assert Fault.from_json(fault.to_json()) == fault


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lunch", "during must be one of step, save, commit, eval, infer, restore, compile, not 'lunch'"),
        (
            "savee",
            "during must be one of step, save, commit, eval, infer, restore, compile, not 'savee'; did you mean sav",
        ),
        ("how=sigkill", "how must be one of kill, term, stop, gil, not 'sigkill'"),
        ("at_step=-1", "at_step must be a whole number from 0 up, not -1"),
        ("at_step=2.5", "at_step must be a whole number from 0 up, not 2.5"),
        ("grace=soon", "grace must be a number of seconds below 3600, not 'soon'"),
        ("grace=nan", "grace must be a number of seconds below 3600, not nan"),
        ("save,save", "during is given twice"),
        ("step=3", "there is no 'step': there are at_step, during, how, grace, host, on"),
    ],
)
def test_what_does_not_exist_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=f"^{says.replace('.', '[.]').replace('?', '[?]')}"):
        Fault.from_text(text)


@pytest.mark.parametrize(
    "given",
    [
        {"at_step": True},
        {"grace": "5"},
        {"grace": True},
        {"during": 3},
        {"host": "all"},
        {"host": -1},
        {"on": 4},
        {"on": ""},
        {"worker": 0},
    ],
)
def test_arguments_of_other_types_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be|there is no"):
        Fault.of(given)
