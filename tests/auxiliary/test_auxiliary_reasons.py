"""The reason why a job failed is one line of its log: the line of the error."""

import pytest

from t5x_harness.auxiliary.journal import Record, State, Status, reason_in

GIN = """\
exit status 1; the end of /m/log:
I1124 12:00:00.000000 1 eval.py:1] evaluating
Traceback (most recent call last):
  File "eval.py", line 3, in <module>
    evaluate()
ValueError: There is no task 'wmt14_enfr_v03'. Did you mean 'wmt14_enfr_v003'?
More of the message.
  In call to configurable 'evaluate' (<function evaluate at 0x7f0000000000>)
  In call to configurable 'evaluate' (<function evaluate at 0x7f0000000000>) in scope 'a'
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (GIN, "ValueError: There is no task 'wmt14_enfr_v03'. Did you mean 'wmt14_enfr_v003'?"),
        (GIN.replace("Traceback (most recent call last):\n", ""), "ValueError: There is no task 'wmt14_enfr_v03'."),
        ("Traceback (most recent call last):\n  File\nKeyError: 1\n\nDuring handling\n\n" + GIN, "ValueError: There"),
        ("Traceback (most recent call last):\n  File\nKeyboardInterrupt\n", "KeyboardInterrupt"),
        ("Traceback (most recent call last):\n  File\n", "  File"),
        (f"{GIN}t5x: error: the gin config cannot be read: x\n", "t5x: error: the gin config cannot be read: x"),
        ("exit status 3; the end of /m/log:\nno space left on device\n", "no space left on device"),
        ("it was killed; its log is /m/log", "it was killed; its log is /m/log"),
        ("projects/1/locations/l/customJobs/2", "projects/1/locations/l/customJobs/2"),
        (" \n", "-"),
        ("", "-"),
    ],
)
def test_the_errors_own_first_sentence(text: str, reason: str) -> None:
    assert reason_in(text).startswith(reason)
    assert "\n" not in reason_in(text)


def test_the_table_shows_it() -> None:
    status = Status("m", "eval", (Record(10, "numbers", State.FAILED, message=GIN),))
    assert "There is no task 'wmt14_enfr_v03'. Did you mean 'wmt14_enfr_v003'?" in status.text()
    assert "In call to configurable" not in status.text()
