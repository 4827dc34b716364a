"""A case, which T5X runs as it is, and its mutants, each with one mistake in one line."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t5x_harness.spec import Mode

PROJECT = Path(__file__).parent / "project"


@dataclasses.dataclass(frozen=True)
class Case:
    """A config of the project.

    Attributes:
      name: the name of its Gin file, without the suffix.
      mode: the mode in which T5X runs it.
      output: the macro of the folder that it writes into.
      has_metrics: whether it computes the metrics of its tasks.
      modules: the files that register them.
    """

    name: str
    mode: Mode
    output: str
    has_metrics: bool = True
    modules: tuple[str, ...] = ("sums.py",)

    @property
    def file(self) -> str:
        """The name of its Gin file."""
        return f"{self.name}.gin"

    @property
    def text(self) -> str:
        """The text of its Gin file."""
        return (PROJECT / self.file).read_text(encoding="utf-8")


CASES = (
    Case("pretrain", Mode.TRAIN, "MODEL_DIR", has_metrics=False),
    Case("finetune", Mode.TRAIN, "MODEL_DIR"),
    Case("eval", Mode.EVAL, "EVAL_OUTPUT_DIR"),
    Case("infer", Mode.INFER, "INFER_OUTPUT_DIR", has_metrics=False),
    Case("decoder", Mode.TRAIN, "MODEL_DIR"),
    Case("scalable", Mode.TRAIN, "MODEL_DIR", has_metrics=False),
)
CASES_OF_TASKS = (*CASES, Case("mixture", Mode.TRAIN, "MODEL_DIR", modules=("reviews.py",)))
"""The cases whose task modules are changed; the Gin file of the last one is like that of finetune."""


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A case with one mistake.

    Attributes:
      case: the name of the case.
      kind: the class of the mistake, such as ``value: quoted``.
      what: the mistake in a line, for people.
      files: the files of the project that it replaces, with their new contents.
      file: the file with the mistake.
      line: its line there, from 1; 0 if the mistake is something that is missing.
      names: the names of parameters, macros, functions or places that a finding about it may have in place of the line.
      slice: the slice to emulate.
      start: how the folder of checkpoints that stands for START in its files is made; empty for none.
      in_bucket: whether the harness sees that folder in a bucket of the user's.
    """

    case: str
    kind: str
    what: str
    files: Mapping[str, str]
    file: str
    line: int
    names: tuple[str, ...] = ()
    slice: str = "v3-8"
    start: str = ""
    in_bucket: bool = False

    @property
    def key(self) -> str:
        """A digest of everything that a run of it depends on."""
        start = [self.start, self.in_bucket] if self.start else []
        content = [self.case, dict(self.files), self.slice, *start]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def group(self) -> str:
        """The first word of its kind, by which the report is divided."""
        return self.kind.partition(":")[0]


def with_lines(case: Case, kind: str, lines: Sequence[str], names: Sequence[str], **parts: Any) -> Mutant:
    """Returns a case with more lines at its end, of which the last has the mistake."""
    text = case.text + "".join(f"{line}\n" for line in lines)
    what, line = "; ".join(lines) or f"on {parts.get('slice')}", text.count("\n") if lines else 0
    return Mutant(case.name, kind, what, {case.file: text}, case.file, line, tuple(names), **parts)


def replaced(text: str, line: int, new: str) -> str:
    """Returns a text in which another line, or no line if ``new`` is empty, stands in place of one, counted from 1."""
    lines = text.splitlines(keepends=True)
    lines[line - 1] = f"{new}\n" if new else ""
    return "".join(lines)
