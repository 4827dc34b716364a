"""The conflicts that pip and uv print when no set of versions meets every requirement: which package is wrong first.

A conflict takes several lines, each of which names a package and what it asks for. The package that is wrong is the
first one that asks for a git repository, that is known to ask for too much, or that differs from the versions that were
tested together.
"""

import dataclasses
import re
from collections.abc import Iterator, Sequence

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from t5x_harness.symptoms.log_lines import LogLine
from t5x_harness.system.tested_versions import tested_versions

_PIP = "The conflict is caused by:"
_UV = "No solution found when resolving dependencies"
_PIP_LINE = re.compile(
    r"(?:(?P<asker>[\w.-]+\S* \d\S*) depends on|The user requested(?: \(constraint\))?) (?P<wanted>\S.*)"
)
_NAME = r"[\w.-]+(?:\[[\w,.-]+\])?"
_BOUNDED = rf"{_NAME}(?:[<>=!~]=?[\w.*+!]+(?:,[<>=!~]=?[\w.*+!]+)*)?"
_UV_DEMAND = re.compile(
    rf"(?:(?P<asker>{_BOUNDED}) depends? on|(?<!conclude that )you require) (?P<wanted>{_BOUNDED}(?: @ \S+)?)"
)
_UV_MISSING = re.compile(
    rf"there (?:is|are) no versions? of (?P<wanted>{_BOUNDED})|(?P<name>{_NAME}) was not found in the package registry"
)
_FROM_GIT = re.compile(r"git\+(?P<address>[^\s#)@]+)")
_MOST = 40
"""The most lines of a conflict that are read."""


@dataclasses.dataclass(frozen=True)
class Demand:
    """A requirement in a conflict.

    Attributes:
      asker: the package that has it, with its version, such as ``flax 0.12.4``; empty for the user's own command.
      wanted: what it asks for, such as ``optax==0.2.6``.
      line: the line that names it.
    """

    asker: str
    wanted: str
    line: LogLine

    @property
    def name(self) -> str:
        """The normalized name of the package that it asks for."""
        return _normalized(self.wanted)

    @property
    def repository(self) -> str:
        """The address of the git repository that it asks for; empty if it asks for a release."""
        found = _FROM_GIT.search(self.wanted)
        return found["address"] if found else ""

    @property
    def is_tested(self) -> bool:
        """Whether the version that was tested meets it, and its package is the tested one, as far as both are known."""
        asker, _, version = self.asker.partition(" ")
        tested = tested_versions()
        if asker and tested.get(_normalized(asker), version) != version:
            return False
        try:
            bounds = Requirement(self.wanted).specifier
        except InvalidRequirement:  # pip prints a package that it was given by its address as a name and a version
            return True
        return self.name not in tested or bounds.contains(tested[self.name], prereleases=True)

    def __str__(self) -> str:
        return f"{self.asker or 'your command'} asks for {self._what}"

    @property
    def blame(self) -> str:
        """Names it as what is wrong."""
        who = f"{self.asker}, which asks for {self._what}" if self.asker else f"{self._what} of your command"
        return f"the first that is wrong is {who}"

    @property
    def _what(self) -> str:
        return f"the head of {self.repository}" if self.repository else self.wanted


@dataclasses.dataclass(frozen=True)
class Conflict:
    """What a conflict comes from.

    Attributes:
      code: the code of the mistake.
      message: the package that is wrong, and what it and the others ask for.
      line: the line that names the package.
    """

    code: str
    message: str
    line: LogLine


class ConflictReader:
    """Reads the lines of a log, and keeps the last conflict of a resolver in it."""

    def __init__(self) -> None:
        self._demands: list[Demand] = []
        self._text = ""
        self._first: LogLine | None = None
        self._left = 0
        self._is_uv = False

    def read(self, line: LogLine) -> None:
        """Reads the next line."""
        if _PIP in line.text or _UV in line.text:
            self._is_uv, self._left = _UV in line.text, _MOST
            self._demands, self._text, self._first = [], "", None
        elif self._left:
            self._left -= 1
            self._read_more(line)

    def _read_more(self, line: LogLine) -> None:
        if self._is_uv:
            ended = bool(self._text) and not line.text.strip(" │")
            self._text += "" if ended else f" {line.text.strip(' │')}"
            self._first = self._first or line
        elif found := _PIP_LINE.search(line.text):
            self._demands.append(Demand(found["asker"] or "", found["wanted"].strip(), line))
            ended = False
        else:
            ended = bool(self._demands)
        if ended:
            self._left = 0

    def conflict(self) -> Conflict | None:
        """Returns what the conflict comes from; None if there was none."""
        if self._first is not None:
            return _judge(list(_demands_of_uv(self._text, self._first)), _missing_of_uv(self._text), self._first)
        return _judge(self._demands, "", self._demands[0].line) if self._demands else None


def _demands_of_uv(text: str, line: LogLine) -> Iterator[Demand]:
    for found in _UV_DEMAND.finditer(text):
        yield Demand((found["asker"] or "").replace("==", " "), found["wanted"].rstrip(".,"), line)


def _missing_of_uv(text: str) -> str:
    found = _UV_MISSING.search(text)
    return (found["wanted"] or found["name"]).rstrip(".,") if found else ""


def _judge(demands: Sequence[Demand], missing: str, first: LogLine) -> Conflict | None:
    others = [demand for demand in demands if not demand.repository]
    for demand in demands:
        if demand.repository and demand.asker:
            beside = next((f", and {other}" for other in others if other.name == demand.name), "")
            return Conflict("INS02", f"{demand.blame}{beside}", demand.line)
    for demand in demands:
        if demand.asker.startswith("t5 "):
            return Conflict("INS04", demand.blame, demand.line)
        if demand.name == "python" and demand.asker:
            return Conflict("INS03", f"{demand}, and this is an older one", demand.line)
    if missing:
        return _missing(missing, demands, first)
    wrong = next((demand for demand in demands if not demand.is_tested), None)
    if wrong is not None:
        beside = next((f", and {other}" for other in others if other.name == wrong.name and other != wrong), "")
        return Conflict("INS01", f"{wrong.blame}{_tested(wrong)}{beside}", wrong.line)
    if not demands:
        return None
    name, askers = demands[0].name, " and ".join(dict.fromkeys(d.asker or "your command" for d in demands))
    message = f"no release of {name} fits, although {askers} would take any: what {name} itself asks for does not fit"
    return Conflict("INS01", f"{message}{_tested_release(name)}", demands[0].line)


def _missing(missing: str, demands: Sequence[Demand], line: LogLine) -> Conflict:
    """Judges what uv did not find: a release that another one asks for is there, and an address has taken its place."""
    asker = next((demand.asker for demand in demands if demand.asker and demand.wanted == missing), "")
    if asker and "==" in missing:
        name = _normalized(missing)
        message = f"{asker} asks for {missing}, and uv was given {name} by an address, as T5X asks for it"
        return Conflict("INS02", message, line)
    by = f", which {asker} asks for" if asker else ""
    return Conflict("INS03", f"the package index has no {missing}{by}", line)


def _tested(demand: Demand) -> str:
    """Says which versions were tested, of the package that asks for another one or of what it asks for."""
    return _tested_release(_normalized(demand.asker)) if demand.asker else _tested_release(demand.name)


def _tested_release(name: str) -> str:
    version = tested_versions().get(name)
    return f" ({name} {version} was tested)" if version else ""


def _normalized(text: str) -> str:
    found = re.match(r"[\w.-]+", text)
    return canonicalize_name(found[0]) if found else ""
