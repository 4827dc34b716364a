"""The golden plan: a run's final bindings and planned facts as a text that is kept next to the configs and compared.

    [bindings]
    BATCH_SIZE = 128
    train.total_steps = %TRAIN_STEPS

    [plan]
    mesh = data 8 x model 1

The text is the same on every machine: names are sorted, the machine's paths are replaced, and facts that depend on the
machine are left out.  Lines that begin with ``#`` are not compared.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence

from t5x_harness.spec import BoundValue, Stage, StageResult

_BINDINGS = "bindings"
_STAGES = (Stage.RESOLVE, Stage.PLAN)
CHECKPOINT_FITS = "checkpoint fits"
"""The fact that only a machine with access to the run's storage knows; it is not kept."""

_SECTION = re.compile(r"\[([a-z]+)\]")
_INDENT = "    "
_ABSOLUTE = re.compile(r"(?:^|(?<=[\s'\"(\[,=]))/(?:[^\s/'\",:;()\[\]]+/)+(?=[^\s/])", re.MULTILINE)


class GoldenSyntaxError(ValueError):
    """The text is not a golden plan; the message names the line."""


@dataclasses.dataclass(frozen=True)
class GoldenPlan:
    """What is kept of a plan.

    Attributes:
      bindings: every bound name and its value as gin text, macros by name.
      facts: what resolve and plan established, in the order to show it.
    """

    bindings: Mapping[str, str]
    facts: Mapping[str, Mapping[str, str]]

    @classmethod
    def of(cls, bindings: Sequence[BoundValue], stages: Sequence[StageResult], places: Mapping[str, str]) -> GoldenPlan:
        """Takes what is to be kept from a run.

        Args:
          bindings: the run's bindings.
          stages: its stages; only resolve and plan count.
          places: folders of this machine, and what stands for each.
        """
        names = binding_names(bindings)
        values = {names[bound]: _portable(bound.assignment.value, places) for bound in bindings}
        facts = {
            stage.stage.value: {
                name: _ABSOLUTE.sub(".../", _portable(value, places))
                for name, value in stage.facts
                if name != CHECKPOINT_FITS
            }
            for stage in stages
            if stage.stage in _STAGES
        }
        return cls(dict(sorted(values.items())), facts)

    def to_text(self, *comments: str) -> str:
        """Returns the file's text, with comments at its top."""
        sections = {_BINDINGS: self.bindings, **self.facts}
        lines = [f"# {comment}" for comment in comments]
        for title, values in sections.items():
            lines += ["", f"[{title}]"]
            for name, value in values.items():
                lines += _entry(name, value)
        return "\n".join(lines).lstrip("\n") + "\n"

    @classmethod
    def from_text(cls, text: str) -> GoldenPlan:
        """Reads a text that :meth:`to_text` wrote.

        Raises:
          GoldenSyntaxError: a line is not one that :meth:`to_text` writes.
        """
        sections: dict[str, dict[str, str]] = {_BINDINGS: {}}
        section: dict[str, str] | None = None
        name = ""
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip() or line.startswith("#"):
                continue
            if found := _SECTION.fullmatch(line):
                section, name = sections.setdefault(found[1], {}), ""
            elif section is not None and name and line.startswith(_INDENT):
                section[name] = f"{section[name]}\n{line[len(_INDENT) :]}".lstrip("\n")
            elif section is not None and " =" in line and not line.startswith(" "):
                name, _, value = line.partition(" =")
                section[name] = value.removeprefix(" ")
            else:
                raise GoldenSyntaxError(f"line {number} is neither [a section] nor NAME = VALUE: {line.strip()!r}")
        return cls(sections.pop(_BINDINGS), sections)


def binding_names(bindings: Sequence[BoundValue]) -> dict[BoundValue, str]:
    """Returns a name for each binding that does not depend on imports, as short as it can be and unique."""
    short = [_name(bound, parts=2) for bound in bindings]
    return {
        bound: name if short.count(name) == 1 else _name(bound, parts=100)
        for bound, name in zip(bindings, short, strict=True)
    }


def _name(bound: BoundValue, parts: int) -> str:
    if bound.configurable is None:
        return bound.name
    scope, slash, _ = bound.name.rpartition("/")
    target = ".".join(bound.configurable.removeprefix("__main__.").split(".")[-parts:])
    return f"{scope}{slash}{target}.{bound.name.rpartition('.')[2]}"


def _entry(name: str, value: str) -> Iterator[str]:
    """Yields one name and value; a value of several lines follows its name."""
    if "\n" not in value:
        yield f"{name} = {value}".rstrip()
        return
    yield f"{name} ="
    yield from (f"{_INDENT}{line}".rstrip() for line in value.splitlines())


def _portable(text: str, places: Mapping[str, str]) -> str:
    for folder in sorted(places, key=len, reverse=True):
        text = re.sub(rf"{re.escape(folder)}(?=[/'\"\s,:;)]|$)", places[folder], text)
    return "\n".join(line.rstrip() for line in text.splitlines())
