"""Runs at the start of every Python process under ``t5x-harness exec``, whose PYTHONPATH begins with this folder.

Programs with their own Python (such as gcloud and gsutil) also load this file, and must not notice: its syntax is valid
in every Python, and it writes nothing to the output of a program that does not import T5X.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def run_shadowed():
    """Runs the ``sitecustomize`` that Python would have run without this one."""
    rest = [p for p in sys.path if os.path.abspath(p or os.curdir) != HERE]
    spec = PathFinder.find_spec("sitecustomize", rest)
    if spec is None or spec.loader is None:
        return
    module = type(sys)("sitecustomize")
    module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin
    # Programs that look for definitions of their own sitecustomize must find them.
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


class TooOld(object):  # noqa: UP004 - Python 2 has others
    """A finder for an interpreter that the harness does not support, which reports that when T5X is imported."""

    @classmethod
    def find_spec(cls, fullname, _path=None, _target=None):
        """Returns None, so that the other finders look for the module."""
        if fullname == "t5x":
            sys.meta_path.remove(cls)
            version = ".".join(str(n) for n in sys.version_info[:2])
            message = (
                "t5x-harness: {} is Python {}; without Python 3.11 it has neither the harness's t5x nor its mesh\n"
            )
            sys.stderr.write(message.format(sys.executable, version))


def set_up_harness():
    """Makes the harness resolve ``import t5x`` and provide T5X with the slice's mesh."""
    if sys.version_info < (3, 11):  # noqa: UP036 - any interpreter that the command starts gets here
        sys.meta_path.insert(0, TooOld)
        return
    try:
        from t5x_harness.bootstrap import start
    except ModuleNotFoundError:
        load_own_package()
        from t5x_harness.bootstrap import start

    start.start()
    root = os.environ.get("T5X_HARNESS_GCS_PATCH")
    if root:
        from t5x_harness.google.gcs_mount.patching import patch

        patch(root)


def load_own_package():
    """Imports the ``t5x_harness`` that this file belongs to, for an interpreter whose environment lacks it."""
    package = os.path.dirname(HERE)
    spec = PathFinder.find_spec("t5x_harness", [os.path.dirname(package)])
    module = type(sys)("t5x_harness")
    module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin
    module.__path__ = spec.submodule_search_locations
    sys.modules["t5x_harness"] = module
    spec.loader.exec_module(module)


if sys.version_info >= (3, 5):  # noqa: UP036 - as above
    from importlib.machinery import PathFinder

    try:
        run_shadowed()
    finally:
        set_up_harness()
