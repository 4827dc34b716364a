"""Fixes configs as far as that is safe: applies the edits of findings, lints again, and keeps the improvements."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from t5x_harness.gin.problems import ProblemKind
from t5x_harness.gin.program import GinProgram
from t5x_harness.gin.reading import program_of
from t5x_harness.lint.classify import RunIf
from t5x_harness.lint.stage import lint_program
from t5x_harness.spec import Edit, Finding, RunSpec, Severity

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
_END = re.compile(r"(?:\r\n|\r|\n)\Z")

Group = tuple[Edit, ...]


def select(groups: Iterable[Group]) -> list[Group]:
    """Returns the groups of edits that can be applied together, first come, first served; no group is split."""
    chosen: list[Group] = []
    taken: list[Edit] = []
    for group in groups:
        if not any(_collide(edit, other) for edit in group for other in taken):
            chosen.append(group)
            taken.extend(group)
    return chosen


def _collide(one: Edit, other: Edit) -> bool:
    """Returns whether two edits touch the same line; two insertions at one place do so only if they are equal."""
    if one.file != other.file:
        return False
    if one == other:
        return True
    return max(one.first, other.first) <= min(one.last, other.last) or any(
        insertion.last < insertion.first and replaced.first < insertion.first <= replaced.last
        for insertion, replaced in ((one, other), (other, one))
    )


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    """Applies edits of one file that do not touch the same line.

    Args:
      text: the file's text, with its own line ends.
      edits: the edits of this file; insertions before the same line keep their order.

    Returns:
      The edited text. New lines have the line ends of the lines around them, and the last line has one only if it did.
    """
    lines = [(line.rstrip("\r\n"), line[len(line.rstrip("\r\n")) :]) for line in _LINE.findall(text)]
    usual = next((end for _, end in lines if end), "\n")
    unended = bool(lines) and not lines[-1][1]
    for edit in sorted(edits, key=lambda edit: (edit.first, edit.last))[::-1]:
        neighbours = (*lines[edit.first - 1 : edit.last], *lines[max(edit.first - 2, 0) : edit.first])
        end = next((end for _, end in neighbours if end), usual)
        lines[edit.first - 1 : edit.last] = [(line, end) for line in edit.text.removesuffix("\n").split("\n")] * bool(
            edit.text
        )
    joined = "".join(f"{line}{end or usual}" for line, end in lines)
    return joined.rstrip("\r\n") if unended else joined


def unified_diff(name: str, before: str, after: str) -> str:
    """Returns the change of one file in the form that ``patch -p0`` and ``git apply -p0`` read; empty for no change."""
    lines = difflib.unified_diff(_LINE.findall(before), _LINE.findall(after), name, name)
    return "".join(line if _END.search(line) else f"{line}\n\\ No newline at end of file\n" for line in lines)


def write_atomically(path: Path, text: str) -> None:
    """Replaces the text of a file atomically; its mode is kept, and a link to it stays a link.

    Raises:
      OSError: it cannot be written; the file is unchanged.
    """
    target = Path(os.path.realpath(path))
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        shutil.copymode(target, temporary)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


_MOST_ROUNDS = 50  # each fixes at least one finding of each file

_UNKNOWN = frozenset({"GIN13", "GIN14", "GIN18"})  # parameters, names and macros: nothing is known about their values


@dataclasses.dataclass(frozen=True)
class Config:
    """A run or a fragment, which is linted as a unit.

    Attributes:
      spec: its files and bindings.
      run_if: the condition for judging it as a run.
      t5x_parent: the folder that holds the package ``t5x`` in use.
      on_slice: whether the user named the run's slice.
    """

    spec: RunSpec
    run_if: RunIf = RunIf.ALWAYS
    t5x_parent: str | Path | None = None
    on_slice: bool = False


@dataclasses.dataclass(frozen=True)
class FixedFile:
    """A file before and after, with its own line ends; ``shown`` is its name in messages."""

    path: Path
    shown: str
    before: str
    after: str

    @property
    def diff(self) -> str:
        """The change as a unified diff."""
        return unified_diff(self.shown, self.before, self.after)


@dataclasses.dataclass(frozen=True)
class Fixes:
    """The fixes of some configs, and the findings that they leave.

    Attributes:
      files: the files that change, in the order in which they are read.
      fixed: the findings that the change fixes, each once.
      refused: the findings whose edits would cause new errors.
      elsewhere: files that could also be fixed if the user named them.
    """

    files: tuple[FixedFile, ...]
    fixed: tuple[Finding, ...]
    refused: tuple[Finding, ...]
    elsewhere: tuple[str, ...]


def fix(configs: Sequence[Config], may_change: Callable[[Path], bool]) -> Fixes:
    """Makes all fixes that are safe, without writing anything.

    Edits that touch the same line wait for the next round, which lints again. A round that leaves a config worse is
    undone, and its edits are tried one finding at a time. Later rounds may fix an error that an edit causes. A
    config that the last round leaves worse is also undone.

    Args:
      configs: the runs and fragments; a file that several of them read has to suit all of them.
      may_change: returns whether the user wants a file to be changed, given its real path.
    """
    return _Fixer(configs, may_change).fix()


@dataclasses.dataclass(frozen=True)
class _State:
    """The current state of one config."""

    config: Config
    program: GinProgram
    findings: tuple[Finding, ...]

    def path(self, file: str) -> Path:
        """Returns the real path of a file named in locations."""
        return Path(os.path.realpath(Path(self.config.spec.cwd) / file))

    def reads(self, paths: Collection[Path]) -> bool:
        return any(self.path(file) in paths for file in self.program.files)

    def is_worse_than(self, before: _State, *, mendable: bool = False) -> bool:
        """Returns whether less of the config can be read than before, or as much but with more errors of some kind.

        If more can be read, the errors that come to light were there all along.

        Args:
          before: the config before the change.
          mendable: whether errors that have edits also count.
        """
        hidden, hidden_before = self._hiding(), before._hiding()
        if hidden != hidden_before:
            return hidden > hidden_before
        return bool(self._errors(mendable) - before._errors(mendable))

    def _hiding(self) -> tuple[int, int, int]:
        """Returns how many errors keep others from being seen; the first kind hides more than the second, and so on."""
        mistakes = [p for p in self.program.problems if p.kind is not ProblemKind.UNREACHABLE_FILE]
        lost = sum(problem.loses_statements for problem in mistakes)
        return lost, len(mistakes) - lost, sum(finding.code in _UNKNOWN for finding in self.findings)

    def _errors(self, mendable: bool) -> Counter[str]:
        errors = (finding for finding in self.findings if finding.severity is Severity.ERROR)
        return Counter(finding.code for finding in errors if mendable or not finding.edits)


class _Fixer:
    """The current texts, and the edits that were tried."""

    def __init__(self, configs: Sequence[Config], may_change: Callable[[Path], bool]) -> None:
        self._may_change = may_change
        self._originals: dict[Path, str] = {}
        self._texts: dict[Path, str] = {}
        self._names: dict[Path, str] = {}
        self._states = [self._judge(config, {}) for config in configs]
        self._refused: set[Group] = set()

    def fix(self) -> Fixes:
        good = (self._texts, self._states, tuple[Finding, ...]())
        fixed: tuple[Finding, ...] = ()
        for _ in range(_MOST_ROUNDS):
            offered = {group: finding for group, finding in self._offers() if group not in self._refused}
            chosen = select(offered)
            if not chosen:
                break
            fixed += tuple(offered[group] for group in self._keep(chosen))
            if not any(now.is_worse_than(was, mendable=True) for now, was in zip(self._states, good[1], strict=True)):
                good = (self._texts, self._states, fixed)
        self._texts, self._states, fixed = good
        files = (FixedFile(p, self._names[p], self._originals[p], text) for p, text in self._texts.items())
        return Fixes(
            tuple(file for file in files if file.before != file.after),
            tuple(dict.fromkeys(fixed)),
            tuple(dict.fromkeys(finding for _, finding in self._offers())),
            tuple(dict.fromkeys(self._elsewhere())),
        )

    def _keep(self, chosen: Sequence[Group]) -> Sequence[Group]:
        """Applies the edits that make nothing worse: all at once, or else the first group that can be applied alone."""
        if self._try(chosen):
            return chosen
        for group in chosen if len(chosen) > 1 else ():
            if self._try([group]):
                return [group]
            self._refused.add(group)
        self._refused.update(chosen[:1])
        return ()

    def _judge(self, config: Config, texts: Mapping[Path, str]) -> _State:
        # As Python reads text from a file: every line ends with a line feed.
        read = {path: text.replace("\r\n", "\n").replace("\r", "\n") for path, text in texts.items()}
        program = program_of(config.spec, t5x_parent=config.t5x_parent, texts=read)
        result = lint_program(program, run_if=config.run_if)
        return _State(config, program, result.findings)

    def _offers(self) -> Iterator[tuple[Group, Finding]]:
        """Yields the edits of findings in files that may change, by real paths, so that configs agree on them."""
        seen: set[Group] = set()
        for state in self._states:
            for finding in state.findings:
                group = tuple(dataclasses.replace(edit, file=str(state.path(edit.file))) for edit in finding.edits)
                if not group or group in seen:
                    continue
                seen.add(group)
                if all(self._may_change(Path(edit.file)) for edit in group):
                    self._names.update({state.path(edit.file): edit.file for edit in finding.edits})
                    yield group, finding

    def _try(self, groups: Sequence[Group]) -> bool:
        """Applies edits, unless they make a config worse."""
        by_file: dict[Path, list[Edit]] = {}
        for edit in itertools.chain.from_iterable(groups):
            by_file.setdefault(Path(edit.file), []).append(edit)
        texts = self._texts | {path: apply_edits(self._text(path), edits) for path, edits in by_file.items()}
        changed = {path for path, text in texts.items() if text != self._texts.get(path, self._originals[path])}
        states = [self._judge(s.config, texts) if s.reads(changed) else s for s in self._states]
        if not changed or any(now.is_worse_than(was) for now, was in zip(states, self._states, strict=True)):
            return False
        self._texts, self._states = texts, states
        return True

    def _text(self, path: Path) -> str:
        if path not in self._originals:
            self._originals[path] = path.read_bytes().decode("utf-8")  # with its own line ends
        return self._texts.get(path, self._originals[path])

    def _elsewhere(self) -> Iterator[str]:
        for state in self._states:
            for finding in state.findings:
                yield from (edit.file for edit in finding.edits if not self._may_change(state.path(edit.file)))
