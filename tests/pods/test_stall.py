"""Where a host is, by the stacks of its threads."""

import pytest

from t5x_harness.pods.stall import Place, main_thread, own_place

ENTRY = """\
  File "/x/t5x_harness/workers/run_process.py", line 110 in _call
  File "/x/t5x_harness/workers/zygote_process.py", line 3"""
WAITS = f"""\
Current thread 0x00007f00 (most recent call first):
  File "/env/lib/python3.11/site-packages/jax/_src/array.py", line 623 in _value
  File "/env/lib/python3.11/site-packages/t5x/trainer.py", line 3 in train
{ENTRY} in guard
"""
OWN = f"""\
Current thread 0x00007f00 (most recent call first):
  File "/env/lib/python3.11/socket.py", line 20 in recv
  File "/home/me/data.py", line 12 in rows
  File "/env/lib/python3.11/site-packages/seqio/dataset_providers.py", line 3 in get
{ENTRY} in guard
"""
LIBRARY = f"""\
Current thread 0x00007f00 (most recent call first):
  File "/env/lib/python3.11/threading.py", line 20 in wait
  File "/env/lib/python3.11/site-packages/clu/periodic_actions.py", line 3 in get
{ENTRY} in guard
"""
OTHER = 'Thread 0x00007f11 (most recent call first):\n  File "/home/me/other.py", line 1 in loop\n\n'


@pytest.mark.parametrize(
    ("stacks", "place"),
    [
        (OTHER + WAITS, Place("/env/lib/python3.11/site-packages/t5x/trainer.py:3 in train", waits=True)),
        (OTHER + OWN, Place("/home/me/data.py:12 in rows", waits=False)),
        (OWN + OTHER, Place("/home/me/data.py:12 in rows", waits=False)),
        (OTHER + LIBRARY, Place("/env/lib/python3.11/threading.py:20 in wait", waits=False)),
        (OTHER, Place("", waits=True)),
        ("", Place("", waits=True)),
    ],
    ids=["collective", "own", "own-first", "library", "no-main-thread", "nothing"],
)
def test_the_place_of_the_main_thread(stacks: str, place: Place) -> None:
    assert own_place(main_thread(stacks)) == place
