"""What a stack is seen doing: the names of the parts of a run's time, and the files by which they are recognized."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

from t5x_harness.version import ORIGIN

OTHER = "other"

# The first part with a frame anywhere in the stack counts: what JAX does for a checkpoint is JAX's, and what TensorFlow
# does for one is the checkpoint's. Each has a piece of the file's path and, if not all functions count, the beginnings
# of their names.
_PARTS = (
    ("importing", "<frozen importlib._bootstrap>", ()),
    ("reading compiled programs", "/jax/_src/compilation_cache.py", ()),
    ("compiling", "/jax/_src/compiler.py", ()),
    ("lowering", "/jax/_src/interpreters/mlir.py", ()),
    ("lowering", "/jax/_src/interpreters/pxla.py", ("lower",)),
    ("tracing", "/jax/_src/interpreters/partial_eval.py", ()),
    ("tracing", "/jax/_src/pjit.py", ("_trace", "_infer_params")),
    ("Google Cloud", "/google/cloud/", ()),
    ("Google Cloud", "/urllib3/", ()),
    ("Google Cloud", "/t5x_harness/buckets/", ()),
    ("reading checkpoints", "/checkpoint", ("restore", "_restore", "load", "_load", "read", "_read")),
    ("writing checkpoints", "/checkpoint", ("save", "_save", "write", "_write", "wait", "_wait", "finish")),
    ("parsing Gin", "/gin/config.py", ("parse", "_parse", "finalize", "operative")),
    ("writing metrics", "/clu/", ()),
    ("writing metrics", "/tensorboard", ()),
    ("input pipelines", "/seqio/", ()),
    ("input pipelines", "/tensorflow", ()),
    ("input pipelines", "/grain/", ()),
    ("running programs", "/jax/", ()),
    ("running programs", "/jaxlib/", ()),
)
_GENERATED = "__autograph_generated"
_INSTALLED = f"{os.sep}site-packages{os.sep}"


class Parts:
    """Names the part of a run's time that a stack belongs to.

    Args:
      t5x: the folder of the T5X in use, whose files are not the user's.
    """

    def __init__(self, t5x: str) -> None:
        not_users = (str(Path(ORIGIN).parent), t5x, sys.prefix, sys.base_prefix)
        self._not_users = tuple(os.path.realpath(folder) + os.sep for folder in not_users)
        self._known: dict[CodeType, tuple[int, str]] = {}

    def __call__(self, frame: FrameType) -> str:
        """Returns the part, with the user's file that is innermost in the stack, if there is one."""
        place, users = len(_PARTS), ""
        for code in _codes(frame):
            each, file = self._known.get(code) or self._look_up(code)
            place = min(place, each)
            users = users or file
        part = _PARTS[place][0] if place < len(_PARTS) else OTHER
        return f"{part} of {users}" if users else part

    def _look_up(self, code: CodeType) -> tuple[int, str]:
        file, name = code.co_filename, code.co_name
        place = next(
            (
                number
                for number, (_, part, names) in enumerate(_PARTS)
                if part in file and (not names or name.startswith(names))
            ),
            len(_PARTS),
        )
        is_users = not (
            file.startswith("<") or _GENERATED in file or os.path.realpath(file).startswith(self._not_users)
        )
        self._known[code] = (place, os.path.basename(file) if is_users else "")
        return self._known[code]


def package_of(frame: FrameType) -> str:
    """Returns the package whose module is being imported, the innermost of those that import each other."""
    for code in _codes(frame):
        if code.co_name == "<module>" and _INSTALLED in code.co_filename:
            name = code.co_filename.rpartition(_INSTALLED)[2].partition(os.sep)[0]
            return name.removesuffix(".py")
    return OTHER


def _codes(frame: FrameType | None) -> Iterator[CodeType]:
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back
