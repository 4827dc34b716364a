"""Where a host is, by the stacks of its threads."""

import pytest

from t5x_harness.pods.stall import Place, main_thread, own_place

SITE = "/env/lib/python3.11/site-packages"


def stack(*frames: str) -> str:
    """Returns the stack of the main thread as faulthandler writes it, of frames such as ``FILE 12 rows``."""
    entry = ("/x/t5x_harness/workers/run_process.py 110 _call", "/x/t5x_harness/workers/zygote_process.py 3 guard")
    lines = [f'  File "{file}", line {line} in {name}\n' for file, line, name in map(str.split, (*frames, *entry))]
    return f"Current thread 0x00007f00 (most recent call first):\n{''.join(lines)}"


WAITS = stack(f"{SITE}/jax/_src/array.py 623 _value", f"{SITE}/t5x/trainer.py 3 train")
OWN = stack(
    "/env/lib/python3.11/socket.py 20 recv", "/home/me/data.py 12 rows", f"{SITE}/seqio/dataset_providers.py 3 get"
)
LIBRARY = stack("/env/lib/python3.11/threading.py 20 wait", f"{SITE}/clu/periodic_actions.py 3 get")
OTHER = 'Thread 0x00007f11 (most recent call first):\n  File "/home/me/other.py", line 1 in loop\n\n'


@pytest.mark.parametrize(
    ("stacks", "place"),
    [
        (OTHER + WAITS, Place(f"{SITE}/t5x/trainer.py:3 in train", waits=True)),
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
