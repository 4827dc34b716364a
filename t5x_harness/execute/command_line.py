"""Sets a stage's command line to that of T5X's own program, because modules may read its arguments and absl's flags."""

import argparse
import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Iterator, Sequence

from t5x_harness.spec import Mode, RunSpec


class ProgramEnded(Exception):
    """The user's code called ``sys.exit``, which would also end T5X's program."""


@contextlib.contextmanager
def as_t5x(spec: RunSpec, location: str) -> Iterator[None]:
    """Sets ``sys.argv`` (for a block) and absl's flags (permanently) to those of ``python -m t5x.main`` for a run.

    Args:
      spec: the run.
      location: the folder of the package ``t5x``.

    Raises:
      ProgramEnded: the block calls ``sys.exit``, as argparse does when it meets T5X's own flags.
    """
    before = sys.argv
    sys.argv = [
        os.path.join(location, "main.py"),
        f"--run_mode={spec.mode or Mode.TRAIN}",
        *(f"--gin_file={file}" for file in spec.gin_files),
        *(f"--gin_bindings={binding}" for binding in spec.bindings),
        *([f"--gin_search_paths={','.join(spec.search_paths)}"] if spec.search_paths else []),
        *([f"--tfds_data_dir={spec.settings.tfds_data_dir}"] if spec.settings.tfds_data_dir else []),
    ]
    _parse_flags(sys.argv[1:])
    try:
        yield
    except SystemExit as stop:
        by = "argparse does not know them; call parse_known_args, or parse in a function of your own program"
        frames = traceback.walk_tb(stop.__traceback__)
        is_of_argparse = any(frame.f_code.co_filename == argparse.__file__ for frame, _ in frames)
        advice = f": {by}" if is_of_argparse else ""
        message = (
            f"it ends the program with status {stop.code!r}, and T5X's, too, whose flags are in sys.argv, such as "
            f"{sys.argv[2]}{advice}"
        )
        raise ProgramEnded(message).with_traceback(stop.__traceback__) from None
    finally:
        sys.argv = before


def _parse_flags(words: Sequence[str]) -> None:
    """Defines T5X's flags and sets them. A module may read them, and may define and read its own flags.

    Other flags keep their values, and their validators are not called: this process may be the user's pytest.
    """
    from absl import flags

    with contextlib.suppress(ImportError):  # a fork may start from another program
        importlib.import_module("t5x.main")
    given = [word.removeprefix("--").partition("=") for word in words]
    known = [(flags.FLAGS[name], value) for name, _, value in given if name in flags.FLAGS]
    for flag, _ in known:
        flag.unparse()  # of an earlier run in the same process
    for flag, value in known:
        flag.parse(value)
    flags.FLAGS.mark_as_parsed()
