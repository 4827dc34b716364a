"""Writes configs into a folder and reads or lints them there, with the embedded T5X."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import t5x_harness
from t5x_harness.gin.program import GinProgram
from t5x_harness.gin.reader import read
from t5x_harness.lint.classify import Classification, classify_program
from t5x_harness.lint.stage import lint_program
from t5x_harness.spec import Finding, Mode, RunSpec, StageResult

T5X = Path(t5x_harness.__file__).parent / "embedded"

TINY = "t5x/examples/t5/t5_1_1/tiny.gin"
PRETRAIN = "t5x/configs/runs/pretrain.gin"
FINETUNE = "t5x/configs/runs/finetune.gin"

RUN = f"""\
from __gin__ import dynamic_registration
import __main__ as train_script
from t5x import utils
include '{TINY}'
include '{PRETRAIN}'
MIXTURE_OR_TASK_NAME = 'my_task'
TASK_FEATURE_LENGTHS = {{'inputs': 8, 'targets': 8}}
TRAIN_STEPS = 100
DROPOUT_RATE = 0.0
"""
"""A run config without mistakes, nine lines long."""


def lint(spec: RunSpec, *, t5x_parent: Path = T5X, on_slice: bool = False) -> StageResult:
    return lint_program(read(spec, t5x_parent=t5x_parent), on_slice=on_slice)


def classify(spec: RunSpec, *, t5x_parent: Path = T5X) -> Classification:
    return classify_program(read(spec, t5x_parent=t5x_parent))


class Folder:
    """A working directory with gin files in it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            file = self.path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")

    def spec(
        self,
        gin: str,
        *,
        bindings: Sequence[str] = (),
        mode: Mode | None = None,
        search_paths: tuple[str, ...] = (),
        python_path: tuple[str, ...] = (),
        ignore: tuple[str, ...] = ("GIN34",),  # tests add lines to RUN, which may bind a value again
        **settings: object,
    ) -> RunSpec:
        self.write({"run.gin": gin})
        spec = RunSpec(("run.gin",), tuple(bindings), search_paths, python_path, mode, cwd=str(self.path))
        return spec.with_settings(ignore=ignore, **settings)

    def read(self, gin: str, **fields: object) -> GinProgram:
        return read(self.spec(gin, **fields), t5x_parent=T5X)  # type: ignore[arg-type]

    def lint(self, gin: str, *, on_slice: bool = False, **fields: object) -> StageResult:
        return lint(self.spec(gin, **fields), on_slice=on_slice)  # type: ignore[arg-type]

    def findings(self, gin: str, **fields: object) -> list[Finding]:
        return list(self.lint(gin, **fields).findings)

    def only(self, gin: str, code: str, **fields: object) -> Finding:
        """Returns the only finding with this code."""
        found = [f for f in self.findings(gin, **fields) if f.code == code]
        assert len(found) == 1, self.findings(gin, **fields)
        return found[0]

    def said(self, gin: str, place: str, **fields: object) -> tuple[str, str | None]:
        """Returns message and fix of the only finding with a code and place, given as ``GIN16 error 3 > a.gin:1``."""
        finding = self.only(gin, place.split()[0], **fields)
        at = finding.location
        lines = [str(each).removeprefix("run.gin:") for each in (*at.included_from, at)] if at else []
        assert f"{finding.code} {finding.severity} {' > '.join(lines)}" == place
        return finding.message, finding.fix

    def codes(self, gin: str, **fields: object) -> str:
        """Returns the codes of all findings: ``error GIN16, note CKP14``."""
        return ", ".join(f"{finding.severity} {finding.code}" for finding in self.findings(gin, **fields))
