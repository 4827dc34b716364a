"""Where tasks and mixtures are registered: a config only holds their names."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import seqio

from t5x_harness.resolve.exceptions import shown_path
from t5x_harness.spec import Location
from t5x_harness.upstream.seqio import watch_registrations


@dataclasses.dataclass(frozen=True)
class _RegisteringLine:
    """A line that registers something, and the name under which its module is imported."""

    location: Location
    module: str


class DuplicateRegistration(ValueError):
    """SeqIO refuses a name that is taken; this adds the lines of both registrations."""

    def __init__(self, text: str, name: str, first: _RegisteringLine, second: _RegisteringLine) -> None:
        super().__init__(text)
        self._name = name
        self._first = first
        self._second = second

    @property
    def has_two_names(self) -> bool:
        """Whether one module runs twice because it is imported under two names."""
        return self._first.location.file == self._second.location.file and self._first.module != self._second.module

    @property
    def location(self) -> Location:
        """The line that is refused."""
        return self._second.location

    @property
    def message(self) -> str:
        """What happened, with both lines."""
        at = self._first.location
        if self.has_two_names:
            names = f"{self._first.module} and {self._second.module}"
            return f"{self._name} is registered twice: {at.file} is imported under two names, {names}"
        again = "again by the same line" if at == self.location else f"again at {self.location}"
        return f"{self._name} is registered twice: at {at}, and {again}"

    @property
    def fix(self) -> str:
        """The smallest fix."""
        if self.has_two_names:
            return f"import it under one name only, {self._first.module} or {self._second.module}"
        return "register it once, or give the second one a name of its own"


class Registrations:
    """The lines that registered tasks and mixtures since :meth:`record` was called."""

    def __init__(self) -> None:
        self._places: dict[str, _RegisteringLine] = {}

    @classmethod
    def record(cls) -> Registrations:
        """Watches SeqIO's registries for as long as the process lives; all its runs share one object."""
        found = _of_process()
        watch_registrations(found._register)
        return found

    def _register(self, name: str, frame: FrameType, register: Callable[[], None]) -> None:
        place = _place(frame)
        try:
            register()
        except ValueError as error:
            if name in self._places:
                raise DuplicateRegistration(str(error), name, self._places[name], place) from None
            raise
        self._places[name] = place

    def place(self, name: str) -> Location | None:
        """Returns the line that registered a task or mixture, or None if it was registered before the recording."""
        return self._places[name].location if name in self._places else None


@functools.cache
def _of_process() -> Registrations:
    return Registrations()


def _place(frame: FrameType | None) -> _RegisteringLine:
    """Returns the innermost line that is not in SeqIO."""
    own = Path(seqio.__file__).parent
    while frame is not None and frame.f_back is not None and Path(frame.f_code.co_filename).is_relative_to(own):
        frame = frame.f_back
    assert frame is not None
    location = Location(shown_path(frame.f_code.co_filename), frame.f_lineno)
    return _RegisteringLine(location, str(frame.f_globals.get("__name__", "")))
