"""Which T5X the tests of behavior run: the embedded one, or with ``pytest --t5x-runtime=installed`` the user's own.

Those of the embedded one alone are marked ``embedded``. A file that imports its private modules is of it alone, too,
and so is that of a module for which T5X needs what is not installed, such as ``t5``.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from t5x_harness.runtime.choice import Runtime, find_runtime
from t5x_harness.runtime.import_hooks import use_runtime

IMPORTS = r"^from t5x import (?:[^\n(]*|\([^)]*)"
PRIVATE = re.compile(rf"^(from|import) t5x\._|{IMPORTS}(?<!\w)_", re.MULTILINE)
NEEDS = {"precompile": "t5", "test_utils": "t5", "export_lib": "tensorflow_serving"}
"""What modules of T5X import besides its requirements; the embedded ones do without."""

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
    if name != "installed" or path.suffix != ".py":
        return False
    text = path.read_text(encoding="utf-8")
    lacking = [module for module, needed in NEEDS.items() if importlib.util.find_spec(needed) is None]
    return bool(PRIVATE.search(text) or any(re.search(rf"{IMPORTS}\b{module}\b", text, re.M) for module in lacking))
