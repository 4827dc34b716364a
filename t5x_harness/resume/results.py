"""Compares an inference or evaluation that was interrupted and went on with one that ran through."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from t5x_harness.findings.stage_report import StageReport
from t5x_harness.findings.work import REPEATED
from t5x_harness.resume.comparison import scalar_differences
from t5x_harness.spec import Mode

_OF_PROCESSES = ("config.gin", "model-info.txt", "events.out.tfevents")
"""The beginnings of the names of files that each process writes anew, or appends times to."""

_SHOWN = 3


@dataclasses.dataclass(frozen=True)
class Results:
    """What an inference or evaluation left.

    Attributes:
      files: the lines of each file, by its name.
      scalars: the scalars by tag and step.
      lives: the datasets that the model ran over in each process, as digests of their examples.
    """

    files: Mapping[str, Sequence[str]]
    scalars: Mapping[str, Mapping[int, float]]
    lives: Sequence[Sequence[Sequence[str]]]

    @classmethod
    def read(cls, folder: Path, record: Path, scalars: Mapping[str, Mapping[str, float]]) -> Self:
        """Reads them; a last line of the record that a killed process did not finish is left out."""
        files = {
            path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8", errors="replace").splitlines()
            for path in sorted(folder.rglob("*"))
            if path.is_file() and not path.name.startswith(_OF_PROCESSES)
        }
        lives: list[list[Sequence[str]]] = []
        for text in record.read_text(encoding="utf-8").splitlines(keepends=True) if record.exists() else ():
            line = json.loads(text) if text.endswith("\n") else {}
            if "began" in line:
                lives.append([])
            elif "rows" in line:
                lives[-1].append(line["rows"])
        return cls(files, {tag: {int(s): v for s, v in steps.items()} for tag, steps in scalars.items()}, lives)


def compare_results(
    reference: Results, resumed: Results, mode: Mode, again: Callable[[], Results], report: StageReport
) -> int:
    """Reports what an interrupted inference or evaluation left, and returns how many datasets it went over twice.

    Args:
      reference: the results of one that ran through.
      resumed: the results of the interrupted one.
      mode: which of the two it is.
      again: a function that repeats the reference, before a difference counts as a mistake.
      report: the report of the stage.
    """
    if not (reference.lives and reference.lives[-1] and resumed.lives):
        report.unproved, report.exercised = "the model was run over nothing that could be recorded", 1
        return 0
    through, last = reference.lives[-1], resumed.lives[-1]
    twice = sum(map(len, resumed.lives)) - len(through)
    unit = "chunk" if mode is Mode.INFER else "pass of the model"
    began = through.index(last[0]) if last and last[0] in through else 0
    at = f"{unit} {began} of {len(through)}"
    note = "; T5X keeps no part of an evaluation" if mode is Mode.EVAL and not began else ""
    report.fact("went on from", f"{at}; {max(twice, 0)} made twice{note}")
    if mode is Mode.INFER and len(through) < 2:
        report.not_checked.append("going on after a finished chunk: the data has a single batch")
    report.exercised = len(last)
    report.idle = "there was nothing left to do after the restart"
    if wrong := _differences(reference, resumed):
        if _differences(reference, again()):
            what = "inference" if mode is Mode.INFER else "evaluation"
            report.not_checked.append(f"the results after a restart: without one, the same {what} differs from itself")
            return max(twice, 0)
        more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        message = f"what was interrupted and went on left other results: {'; '.join(wrong[:_SHOWN])}{more}"
        fix = "look at what write_fn, merge_fn or metric_fns keep outside of the files, and at random numbers"
        report.find("RES09", message, fix=fix)
    else:
        lines = sum(map(len, reference.files.values()))
        report.fact(
            REPEATED, f"{lines} lines of {len(reference.files)} files and {len(reference.scalars)} scalars, equal"
        )
    return max(twice, 0)


def _differences(wanted: Results, found: Results) -> list[str]:
    differences = [f"there is no {name}" for name in wanted.files if name not in found.files]
    differences += [f"{name} is left" for name in found.files if name not in wanted.files]
    for name, lines in wanted.files.items():
        others = found.files.get(name, lines)
        if len(others) != len(lines):
            differences.append(f"{name} has {len(others)} lines, and {len(lines)} without a restart")
        elif others != lines:
            first = next(n for n, (one, other) in enumerate(zip(lines, others, strict=True), start=1) if one != other)
            differences.append(f"line {first} of {name} is another one")
    return differences + [text for _, _, text in scalar_differences(wanted.scalars, found.scalars)]
