"""The package ``t5``, if it is not installed: the few tasks of ``t5.data.mixtures`` that T5X's own configs name."""

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from t5x_harness.lint.t5_package import INSTALL, MODULES, NAME, TASKS
from t5x_harness.spec import StandInPolicy


def install(policy: StandInPolicy, note: Callable[[], None]) -> None:
    """Makes ``import t5.data.mixtures`` register the stand-ins in this process, unless Python finds the package.

    Args:
      policy: whether stand-ins are used at all.
      note: called when they are registered.
    """
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
    if policy is not StandInPolicy.OFF:
        sys.meta_path.append(_Finder(note))  # at the end, so that an installed package is found first


class _Finder:
    """Finds the modules of the stand-in and loads them."""

    def __init__(self, note: Callable[[], None]) -> None:
        self._note = note

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the spec of a module of the stand-in; None for modules of other packages and of a real ``t5``.

        Raises:
          ModuleNotFoundError: the stand-in has no such module.
        """
        if fullname.partition(".")[0] != NAME or not (fullname == NAME or path == []):
            return None
        if fullname not in MODULES:
            raise ModuleNotFoundError(
                f"No module named {fullname!r}: the stand-in for the package t5 only has the tasks {', '.join(TASKS)}; "
                f"install it: {INSTALL}",
                name=fullname,
            )
        return ModuleSpec(fullname, self, origin="stand-in", is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """Lets Python make the module."""

    def exec_module(self, module: ModuleType) -> None:
        """Registers the tasks in the modules in which T5 registers them."""
        if module.__name__ in ("t5.data.mixtures", "t5.data.tasks"):
            from t5x_harness.sample_tasks import t5_tasks  # noqa: F401  (importing it registers them)

            self._note()
