"""The reports of users, each a folder with a project as its user had it, and what differs in the cured one."""

from __future__ import annotations

import dataclasses
import re
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

HERE = Path(__file__).parent / "reports"
COMMON = HERE / "common"
FILE = "report.toml"
CURED = "cured"


@dataclasses.dataclass(frozen=True)
class Report:
    """One report, and what the tool says about it.

    Attributes:
      folder: its folder; the number of the report begins its name.
      threads: the public threads, such as ``google/seqio#182``.
      saw: what the user saw.
      stage: the stage or command that finds the cause; empty if none does.
      why_not: the reason why nothing finds it; empty if it is found.
      code: the code of the finding; empty for a command whose errors have none.
      message: a part of its message.
      fix: a part of its fix.
      also: the codes of what else is wrong with the project and with the cured one.
      own_process: whether its runs share no process, because they import more than the project.
      timeout: the time limit of a stage, in seconds.
      slice: the slice that the project is for.
      settings: settings of the run.
      variables: environment variables.
      checkpoints: folders of checkpoints, and the config of the run that wrote each.
      installed: the versions of the distributions in its environment, by name; none if it is a project.
      cured: the fields that differ in the cured project, in addition to its files.
    """

    folder: Path
    threads: tuple[str, ...]
    saw: str
    stage: str = ""
    why_not: str = ""
    code: str = ""
    message: str = ""
    fix: str = ""
    also: tuple[str, ...] = ()
    own_process: bool = False
    timeout: float = 300
    slice: str = "v3-8"
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    checkpoints: Mapping[str, str] = dataclasses.field(default_factory=dict)
    installed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    cured: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Reads the report of a folder."""
        fields = tomllib.loads((folder / FILE).read_text(encoding="utf-8"))
        return cls(folder, tuple(fields.pop("threads")), **fields)

    @property
    def number(self) -> int:
        """The number of the report."""
        return int(self.folder.name.partition("-")[0])

    def write(self, place: Path, *, cured: bool) -> Self:
        """Copies the project, or the cured one, to a folder; ``/path/to`` in its configs becomes that folder.

        Returns:
          The report of the project that was copied, in its new folder.
        """
        shutil.copytree(COMMON, place / COMMON.name)
        shutil.copytree(self.folder, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns(FILE, CURED))
        if cured and (self.folder / CURED).is_dir():
            shutil.copytree(self.folder / CURED, place, dirs_exist_ok=True)
        for config in place.glob("*.gin"):
            config.write_text(config.read_text(encoding="utf-8").replace("/path/to", str(place)), encoding="utf-8")
        return dataclasses.replace(self, folder=place, **(self.cured if cured else {}))


def reports() -> tuple[Report, ...]:
    """Returns every report, in the order of their numbers."""
    found = (Report.read(file.parent) for file in HERE.glob(f"*/{FILE}"))
    return tuple(sorted(found, key=lambda report: (report.number, report.folder.name)))


def address(thread: str) -> str:
    """Returns the address of a thread."""
    match = re.fullmatch(r"([\w.-]+/[\w.-]+)#(\d+)", thread)
    if match is None:
        raise ValueError(f"{thread} is not a thread: write owner/name#number")
    return f"https://github.com/{match[1]}/issues/{match[2]}"
