"""The folders that runs keep their output in (``--model_dir``), each of which belongs to one run forever.

T5X continues from any checkpoint that it finds in its folder. A shrunk run must neither do that nor write into the
folder of a real one, so a folder with anything in it is refused.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from t5x_harness.spec import RunSpec

_SHOWN = 2


class ModelDirError(ValueError):
    """A run cannot have the folder that it asks for; the message names the folder, the reason and the fix."""


def _refusal(spec: RunSpec, why: str) -> ModelDirError:
    return ModelDirError(f"--model_dir {spec.settings.model_dir}: {why}")


def ensure_model_dirs(specs: Sequence[RunSpec]) -> None:
    """Checks that every ``model_dir`` can be written, by one run only, before anything is started.

    Raises:
      ModelDirError: two runs name one folder, or a folder cannot be written or is not empty.
    """
    taken: dict[Path, RunSpec] = {}
    for spec in specs:
        if spec.settings.model_dir is not None and "://" in spec.settings.model_dir:
            why = "results are kept on this machine; name a local folder, and bind MODEL_DIR for where the job writes"
            raise _refusal(spec, why)
        folder = _folder(spec)
        if folder is None:
            continue
        if folder in taken:
            raise ModelDirError(
                f"{taken[folder].name} and {spec.name} would both write into {spec.settings.model_dir}: "
                "give each run its own --model_dir, or leave it out"
            )
        taken[folder] = spec
        existing = next(p for p in (folder, *folder.parents) if p.exists())
        if not existing.is_dir():
            raise _refusal(spec, f"{existing} is a file; name a folder")
        if not os.access(existing, os.W_OK | os.X_OK):
            raise _refusal(spec, f"no permission to write into {existing}; name another folder")
        if existing == folder:
            _refuse_used(folder, spec)


@contextlib.contextmanager
def claim_model_dir(spec: RunSpec) -> Iterator[None]:
    """Makes a run's ``model_dir`` and keeps other runs, including those of other processes, out of it while it is used.

    Afterwards, the folders that were made are removed if the run left nothing in them.

    Raises:
      ModelDirError: the folder cannot be made, is in use, or is not empty.
    """
    folder = _folder(spec)
    if folder is None:
        yield
        return
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        _remove_empty(made)
        raise _refusal(spec, f"cannot be written: {error.strerror}; name another folder") from None
    try:
        try:
            # On the folder itself: such a lock leaves no file behind and ends with this process, however that ends.
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _refusal(spec, "another run is writing into it; give each run its own") from None
        _refuse_used(folder, spec)
        yield
    finally:
        os.close(handle)
        _remove_empty(made)


def _folder(spec: RunSpec) -> Path | None:
    """Returns the folder that a run asks for; None if it asks for none."""
    if spec.settings.model_dir is None:
        return None
    return Path(spec.cwd, spec.settings.model_dir).resolve()


def _refuse_used(folder: Path, spec: RunSpec) -> None:
    names = sorted(path.name for path in folder.iterdir())
    if names:
        left = len(names) - _SHOWN
        listed = ", ".join(names[:_SHOWN]) + (f" and {left} more" if left > 0 else "")
        raise _refusal(spec, f"it already holds {listed}; name a new folder for each run, or empty it")


def _remove_empty(folders: Sequence[Path]) -> None:
    """Removes folders, innermost first, up to the first one that is not empty."""
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return
