"""The T5X that tests of behavior run: the embedded one, or the user's own with ``pytest --t5x-runtime=installed``.

Tests of the embedded T5X alone are marked ``embedded``. A file that imports its private modules is also of it alone,
and so is a test file of a module for which T5X needs a package that is not installed, such as ``t5``.
"""

import importlib.util
import re
from pathlib import Path

from t5x_harness.runtime.choice import Runtime, find_runtime
from t5x_harness.runtime.import_hooks import use_runtime

IMPORTS = r"^from t5x import (?:[^\n(]*|\([^)]*)"
PRIVATE = re.compile(rf"^(from|import) t5x\._|{IMPORTS}(?<!\w)_", re.MULTILINE)
NEEDS = {"precompile": "t5", "test_utils": "t5", "export_lib": "tensorflow_serving"}
"""The packages that modules of T5X import in addition to its requirements. The embedded modules do not need them."""

name = "embedded"
"""The T5X in use. tests/conftest.py sets it to ``installed`` with that option, before any test is imported."""


def use() -> None:
    """Makes ``import t5x`` in this process import the T5X in use."""
    use_runtime(name)


def found() -> Runtime:
    """Returns the T5X in use."""
    return find_runtime(name)


def is_other(path: Path) -> bool:
    """Tells whether a test file is of the embedded T5X alone while another T5X is in use."""
    if name != "installed" or path.suffix != ".py":
        return False
    text = path.read_text(encoding="utf-8")
    lacking = [module for module, needed in NEEDS.items() if importlib.util.find_spec(needed) is None]
    return bool(PRIVATE.search(text) or any(re.search(rf"{IMPORTS}\b{module}\b", text, re.M) for module in lacking))
