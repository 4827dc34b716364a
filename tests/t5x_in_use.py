"""Which T5X the tests of behavior run: the embedded one, or with ``pytest --t5x-runtime=installed`` the user's own.

Those of the embedded one alone are marked ``embedded``; a file that imports its private modules is of it alone, too.
"""

from __future__ import annotations

import re
from pathlib import Path

from t5x_harness.runtime.choice import Runtime, find_runtime
from t5x_harness.runtime.import_hooks import use_runtime

PRIVATE = re.compile(r"^(from|import) t5x\._", re.MULTILINE)

name = "embedded"
"""With ``--t5x-runtime=installed``, tests/conftest.py sets it so, before any test is imported."""


def use() -> None:
    """Makes ``import t5x`` in this process give it."""
    use_runtime(name)


def found() -> Runtime:
    """The T5X itself."""
    return find_runtime(name)


def is_other(path: Path) -> bool:
    """Whether a file of tests is of the embedded T5X alone, and that is not the one in use."""
    return name == "installed" and path.suffix == ".py" and bool(PRIVATE.search(path.read_text(encoding="utf-8")))
