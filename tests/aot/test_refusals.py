"""A program that cannot be judged: what is said, and that a compilation of somebody else's is not done again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from t5x_harness.aot import account, compiling
from t5x_harness.aot.compiling import CompiledProgram, Compiler
from t5x_harness.aot.libtpu import CompilerResult, CompilerVerdict, Until
from t5x_harness.aot.refusals import NotCompiled, findings_of, refused
from t5x_harness.aot.request import AotRun, LayerStack, LoweredProgram, ProgramSpec
from t5x_harness.spec import AotMode, Finding, RunSettings, RunSpec, Severity, Stage
from t5x_harness.workers.run import OnProgress, RunProcess

TRAIN = ProgramSpec("train", "train_dataset_cfg", "", {}, {})
LOWERED = LoweredProgram("f", 10, {"data": 8}, 4)
SPEC = RunSpec(("a.gin",), settings=RunSettings(aot=AotMode.DEPTHS))


class FakeRun(RunProcess):
    """A process that answers as it is said; what another one kept is there once this one has waited."""

    pid, log = 0, Path("train/run.log")

    def __init__(self, result: CompilerResult, kept: Path | None = None) -> None:
        self.called: list[str] = []
        self._result = result
        self._kept = kept

    def call(self, method: str, /, *, on_progress: OnProgress | None = None, **_: Any) -> Any:
        self.called.append(method)
        if method == "lower":
            return LOWERED.to_json()
        if method == "compile":
            return self._result.to_json()
        if self._kept is not None and on_progress is not None:
            on_progress({"stage": "aot", "waiting": True})
            self._kept.parent.mkdir(parents=True)
            compiled = CompiledProgram(LOWERED, CompilerResult(CompilerVerdict.OUT_OF_MEMORY, "of another", 1.0))
            self._kept.write_text(json.dumps({"format": compiling._FORMAT, **compiled.to_json()}), encoding="utf-8")
        return None

    def close(self) -> None:
        """Does nothing."""


def refusal(run: RunProcess, folder: Path, until: Until = Until.MEMORY) -> Finding:
    with pytest.raises(NotCompiled) as caught:
        Compiler(lambda folder, spec: run, folder).compile(TRAIN, SPEC, until)
    return caught.value.finding


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T5X_HARNESS_CACHE_DIR", "off")


def test_what_the_compiler_refuses_is_said_with_its_log(tmp_path: Path) -> None:
    said = "INTERNAL: E0200: Mosaic failed to compile TPU kernel: unsupported shape cast\n\nThe MLIR operation: …"
    assert refusal(FakeRun(CompilerResult(CompilerVerdict.FAILED, said)), tmp_path) == Finding(
        "AOT03",
        Severity.ERROR,
        Stage.AOT,
        "the TPU compiler refuses it: Mosaic failed to compile TPU kernel: unsupported shape cast",
        fix="see train/run.log for its whole message; a newer or older libtpu may compile it",
    )


def test_the_users_line_is_that_of_the_compilers_account(tmp_path: Path) -> None:
    mine = tmp_path / "custom.py"
    said = (
        "INVALID_ARGUMENT: Custom emitter for my_target not found\n\nSuspected Python Code Location:\n"
        f"  {pytest.__file__}:3:1 [call]\n  {mine}:6:24 [Odd.decode]\n  {mine}:9:1 [Odd.apply]"
    )
    found = refused(said, Path("run.log")).finding
    assert found.message == "the TPU compiler refuses it: Custom emitter for my_target not found"
    assert found.location is not None
    assert Path(found.location.file).name == "custom.py"
    assert found.location.line == 6


def test_one_reason_of_several_programs_is_one_finding() -> None:
    errors = [(name, refused("INTERNAL: no", Path(name, "run.log"))) for name in ("train", "train_eval", "predict")]
    other = ("score", refused("INTERNAL: yes", Path("run.log")))
    found = list(findings_of([*errors[:2], other, errors[2]]))
    assert [each.message for each in found] == [
        "train, train_eval and predict: the TPU compiler refuses it: no",
        "score: the TPU compiler refuses it: yes",
    ]
    assert found[0].fix.startswith("see train/run.log for ")


@pytest.mark.parametrize(
    ("until", "less"), [(Until.MEMORY, "--aot=depths or --aot=lower"), (Until.CODE, "--aot=memory")]
)
def test_too_little_memory_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: Until, less: str
) -> None:
    monkeypatch.setattr(compiling, "needed_bytes", lambda operations, until: 12 * 2**30)
    monkeypatch.setattr(compiling, "available_bytes", lambda: 5 * 2**30)
    run = FakeRun(CompilerResult(CompilerVerdict.COMPILED))
    finding = refusal(run, tmp_path, until)
    assert finding.code == "AOT04"
    assert finding.message == "compiling it takes about 12.0 GiB of this machine's memory, and 5.0 GiB are free"
    assert finding.fix == f"free some, take a larger machine, or compile less of it: {less}"
    assert "compile" not in run.called


def test_what_another_process_compiled_meanwhile_is_not_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("T5X_HARNESS_CACHE_DIR", str(tmp_path))
    run = FakeRun(CompilerResult(CompilerVerdict.COMPILED), tmp_path / "aot" / "f-memory.json")
    compiled = Compiler(lambda folder, spec: run, tmp_path / "run").compile(TRAIN, SPEC, Until.MEMORY)
    assert compiled.is_kept
    assert compiled.result.message == "of another"
    assert run.called == ["lower", "await_turn"]


@pytest.mark.parametrize(
    ("stacks", "scanned", "mode", "why"),
    [
        ((), True, AotMode.DEPTHS, "which are one loop"),
        ((), False, AotMode.DEPTHS, "as no binding says how many"),
        ((LayerStack("network.T5Config.num_decoder_layers", 2),), False, AotMode.DEPTHS, "which are few"),
        ((LayerStack("network.T5Config.num_decoder_layers", 12),), False, AotMode.DEPTHS, "which are not equal"),
        ((), False, AotMode.MEMORY, ""),
    ],
)
def test_why_all_layers_were_compiled_is_said(
    stacks: tuple[LayerStack, ...],
    scanned: bool,
    mode: AotMode,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = AotRun((TRAIN,), stacks, scanned, {"train": 5}, None, {})  # of 4 bytes at each depth: no line leads to 5

    class Fake:
        def compile(self, *_: Any) -> CompiledProgram:
            return CompiledProgram(LOWERED, CompilerResult(CompilerVerdict.COMPILED))

    monkeypatch.setattr(account, "account_of", lambda *given: given[-1])
    spec = RunSpec(("a.gin",), settings=RunSettings(aot=mode))
    assert account.account_program(run, TRAIN, spec, Fake()) == why  # type: ignore[arg-type]
