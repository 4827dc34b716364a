"""Where tasks and mixtures are registered: their names are all that a config holds of them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import seqio

from t5x_harness.spec import Location

__all__ = ["Registrations"]


class Registrations:
    """The lines that registered tasks and mixtures, from :meth:`record` on."""

    def __init__(self, places: Mapping[str, Location] | None = None) -> None:
        self._places = dict(places or {})

    @classmethod
    def record(cls) -> Registrations:
        """Watches SeqIO's registries for as long as the process lives."""
        found = cls()
        registry: Any = seqio.dataset_providers.DatasetProviderRegistry
        register = registry.add_provider.__func__

        def add_provider(owner: Any, name: str, provider: Any) -> None:
            register(owner, name, provider)
            found._places[name] = _place(sys._getframe(1))

        registry.add_provider = classmethod(add_provider)
        return found

    def place(self, name: str) -> Location | None:
        """The line that registered a task or mixture; None for one that was there before."""
        return self._places.get(name)


def _place(frame: FrameType | None) -> Location:
    """The innermost line that is not SeqIO's own."""
    own = Path(seqio.__file__).parent
    while frame is not None and frame.f_back is not None and Path(frame.f_code.co_filename).is_relative_to(own):
        frame = frame.f_back
    assert frame is not None
    file = Path(frame.f_code.co_filename)
    cwd = Path.cwd()
    return Location(str(file.relative_to(cwd)) if file.is_relative_to(cwd) else str(file), frame.f_lineno)
