"""What to say of a module that cannot be imported: who asks for it, and whether it is misspelt or not installed."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from types import ModuleType

from t5x_harness.lint import t5_package
from t5x_harness.resolve.frames import CodePlace, causes
from t5x_harness.spec import Finding, Location, Severity, Stage
from t5x_harness.system.misspelling import closest


def missing_module(error: BaseException, stage: Stage, frame: CodePlace | None, where: Location | None) -> Finding:
    """Returns the finding for an import that failed.

    Args:
      error: what was raised; a ``ModuleNotFoundError`` is among its causes, or its text.
      stage: the stage that it ended.
      frame: the innermost line of the user's own Python; None where the config itself imports the module.
      where: the line of the config that led there.
    """
    name = next((link.name for link in causes(error) if isinstance(link, ModuleNotFoundError) and link.name), "")
    importer = frame if frame is not None and name else None
    message = f"module {name or 'of this import'} cannot be imported"
    if importer is not None:
        message = f"{importer.file} imports {name}, which is not there"
        if where is not None:
            message += f" ({where} imports {importer.file})" if where.file.endswith(".gin") else ""
    return Finding("GIN15", Severity.ERROR, stage, message, importer.location if importer else where, _fix(name))


def _fix(name: str) -> str:
    if not name:
        return "correct the import, or add the folder of its module to python_path"
    top, _, inside = name.partition(".")
    if top == t5_package.NAME:
        return f"install the package t5, here and in the image of the job: {t5_package.INSTALL}"
    if inside and (parent := _package(name.rpartition(".")[0])) is not None:
        last = name.rpartition(".")[2]
        there = [module.name for module in pkgutil.iter_modules(getattr(parent, "__path__", []))]
        if close := closest(last, there):
            return f"write {parent.__name__}.{close}"
        return f"{parent.__name__} is there, but has no {last}: check its spelling, and the version of {top}"
    # What a package is called on PyPI need not be what it is imported as.
    return (
        f"install the package that has {top} (python -m pip install {top}, most often), here and in the image of the "
        f"job; if {top} is your own, add its folder to python_path"
    )


def _package(name: str) -> ModuleType | None:
    """Returns a package that is imported, or can be; None if there is none of this name."""
    try:
        return importlib.import_module(name)
    except Exception:  # whatever a module raises; it says nothing of the one that is missing
        return None
