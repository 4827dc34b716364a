"""The table of symptoms: codes with their causes and fixes, and the texts by which logs show them.

``table.toml`` has what jobs die of, and ``installation.toml`` what installations and imports fail with.
"""

import dataclasses
import functools
import importlib.resources
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from t5x_harness.system.tested_versions import install_command

Role = Literal["cause", "notice", "death", "raised", "effect", "echo"]
"""What a line of a log says about the end of a job; ``raised`` is an exception that the table does not know.

A ``cause`` went wrong by itself. At a ``notice``, a process was asked to end; a ``death`` or ``raised`` says that one
has ended; all three may also follow from the end of another. An ``effect`` was seen by another host, and an ``echo`` is
an effect that does not say which host is gone.
"""


@dataclasses.dataclass(frozen=True)
class SymptomText:
    """One text of a log.

    Attributes:
      code: the code that it is a symptom of.
      has: a part of every line that the pattern matches.
      pattern: a regular expression; its named groups are the values of the message.
      message: what failed, as a format string.
      next: a regular expression for the following lines that name hosts, with the number as its group; empty for none.
      who: what the message calls the host if the line does not name it; empty for the host whose line it is.
      about: the number of the host that failed, if it is always the same one.
      role: what the line says about the end of the job.
      is_exit: whether it is the exit status of a process.
    """

    code: str
    has: str
    pattern: re.Pattern[str]
    message: str
    next: re.Pattern[str] | None = None
    who: str = ""
    about: int | None = None
    role: Role = "cause"
    is_exit: bool = False


@dataclasses.dataclass(frozen=True)
class SymptomCode:
    """What a job can die of.

    Attributes:
      code: the code in the failure catalog.
      title: the mistake in a few words; empty if the code has a page of its own.
      cause: the likely cause.
      fix: the smallest fix.
      command: the command that makes it; empty if it takes more than a command.
      texts: the texts by which a log shows it.
      statuses: the exit statuses of processes that died of it.
    """

    code: str
    title: str
    cause: str
    fix: str
    command: str
    texts: tuple[SymptomText, ...]
    statuses: tuple[str, ...] = ()


@functools.cache
def symptom_codes() -> Mapping[str, SymptomCode]:
    """Returns every code that has a symptom, in the order of the table."""
    table = _table()
    return {code: _code(code, entry, table["exits"]) for code, entry in table.items() if code.isupper()}


@functools.cache
def progress() -> re.Pattern[str]:
    """Returns the pattern of the lines that T5X logs as it goes on."""
    return re.compile("|".join(_table()["progress"]["texts"]))


def progress_parts() -> Sequence[str]:
    """Returns the beginnings of those lines, one of which is in each of them."""
    return tuple(_table()["progress"]["has"])


@functools.cache
def _table() -> Mapping[str, Any]:
    files = [importlib.resources.files(__package__).joinpath(name) for name in ("table.toml", "installation.toml")]
    jobs, installation = (tomllib.loads(file.read_text(encoding="utf-8")) for file in files)
    return {**jobs, **installation}


def _code(code: str, entry: Mapping[str, Any], exits: Mapping[str, Any]) -> SymptomCode:
    texts = (*_texts(code, entry), *_exit_texts(code, entry, exits))
    statuses = tuple(entry.get("exit", {}).get("statuses", ()))
    command = entry.get("command", "").replace("INSTALL_TESTED", install_command())
    return SymptomCode(code, entry.get("title", ""), entry["cause"], entry["fix"], command, texts, statuses)


def _texts(code: str, entry: Mapping[str, Any]) -> Iterator[SymptomText]:
    for text in entry.get("text", ()):
        compiled = {key: re.compile(text[key]) for key in ("pattern", "next") if key in text}
        yield SymptomText(code, **{**text, **compiled})


def _exit_texts(code: str, entry: Mapping[str, Any], exits: Mapping[str, Any]) -> Iterator[SymptomText]:
    if "exit" not in entry:
        return
    own = entry["exit"]
    status = f"(?P<status>{'|'.join(own['statuses'])})"
    for text in exits["texts"]:
        pattern = re.compile(text["pattern"].replace("STATUS", status))
        yield SymptomText(code, text["has"], pattern, own["message"], role=own["role"], is_exit=True)
