"""Programs are compiled in their own processes, one at a time, and once; failures to judge one are reported."""

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pretend_compiler import GIB, LOWERED, FakeRun

from t5x_harness.aot import account, compiling
from t5x_harness.aot.compiling import CompiledProgram, Compiler, available_bytes, needed_bytes
from t5x_harness.aot.libtpu import CompilerResult, CompilerVerdict, Until
from t5x_harness.aot.refusals import NotCompiled, findings_of, refused
from t5x_harness.aot.request import AotRun, ProgramSpec
from t5x_harness.commands.main import main
from t5x_harness.spec import AotMode, Finding, RunSettings, RunSpec, Severity, Stage
from t5x_harness.workers.run import RunProcess

COMPILES = """
import sys, time
from pathlib import Path
from t5x_harness.aot.libtpu import one_at_a_time
with one_at_a_time(Path(sys.argv[1]), lambda: print("waits", flush=True)):
    print("compiles", flush=True)
    time.sleep(300)
"""
TRAIN = ProgramSpec("train", "train_dataset_cfg", "", {}, {})
SPEC = RunSpec(("a.gin",), settings=RunSettings(aot=AotMode.DEPTHS))


def refusal(run: RunProcess, folder: Path, until: Until = Until.MEMORY) -> Finding:
    with pytest.raises(NotCompiled) as caught:
        Compiler(lambda folder, spec: run, folder).compile(TRAIN, SPEC, until)
    return caught.value.finding


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T5X_HARNESS_CACHE_DIR", "off")


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def read_line(process: subprocess.Popen[str]) -> str:
    return process.stdout.readline().strip()


def test_the_next_process_goes_on_when_the_first_is_killed(
    tmp_path: Path, processes: list[subprocess.Popen[str]]
) -> None:
    command = [sys.executable, "-c", COMPILES, str(tmp_path / "kept" / "aot.lock")]
    for said in ("compiles", "waits"):
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert read_line(processes[-1]) == said
    first, second = processes
    first.kill()
    first.wait()
    assert read_line(second) == "compiles"


def test_progress_says_what_is_compiled_and_that_it_waits(tmp_path: Path) -> None:
    notes: list[object] = []
    compiler = Compiler(lambda folder, spec: FakeRun(), tmp_path, on_progress=lambda event: notes.append(event["note"]))
    with pytest.raises(NotCompiled, match="the TPU compiler ended its process"):
        compiler.compile(TRAIN, SPEC, Until.MEMORY, ", 2 layers")
    assert notes == [
        "lowering train, 2 layers",
        "train, 2 layers: waiting for another compilation",
        "compiling train, 2 layers",
    ]


@pytest.mark.parametrize(
    ("command", "option"), [(["plan", "--aot"], "--aot: "), (["run", "--aot"], "--aot: "), (["fit"], "fit: ")]
)
def test_without_the_compiler_asking_for_it_is_a_mistake_that_names_its_installation(
    command: list[str], option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "libtpu", None)
    monkeypatch.chdir(tmp_path)
    Path("a.gin").write_text("")
    assert importlib.util.find_spec("libtpu") is None
    assert main([*command, "a.gin"]) == 2
    assert capsys.readouterr().err == (
        f"t5x-harness: {option}the TPU compiler is not installed: python -m pip install 't5x-harness[aot]'\n"
    )


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
        ({}, True, AotMode.DEPTHS, "which are one loop"),
        ({}, False, AotMode.DEPTHS, "as no binding says how many"),
        ({"network.T5Config.num_decoder_layers": 2}, False, AotMode.DEPTHS, "which are few"),
        ({"network.T5Config.num_decoder_layers": 12}, False, AotMode.DEPTHS, "which are not equal"),
        ({}, False, AotMode.MEMORY, ""),
    ],
)
def test_why_all_layers_were_compiled_is_said(
    stacks: dict[str, int],
    scanned: bool,
    mode: AotMode,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = AotRun((TRAIN,), stacks, scanned, {"train": 5}, None, {})  # 4 bytes at each depth: no line leads to 5

    class Fake:
        def compile(self, *_: Any) -> CompiledProgram:
            return CompiledProgram(LOWERED, CompilerResult(CompilerVerdict.COMPILED))

    monkeypatch.setattr(account, "account_of", lambda *given: given[-1])
    spec = RunSpec(("a.gin",), settings=RunSettings(aot=mode))
    assert account.account_program(run, TRAIN, spec, Fake()) == why


MEMINFO = {"proc/meminfo": f"MemTotal: 99 kB\nMemAvailable:   {8 * GIB // 1024} kB\n"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (MEMINFO, 8 * GIB),
        ({**MEMINFO, "sys/fs/cgroup/memory.max": "max\n", "sys/fs/cgroup/memory.current": "5\n"}, 8 * GIB),
        ({**MEMINFO, "sys/fs/cgroup/memory.max": f"{4 * GIB}\n", "sys/fs/cgroup/memory.current": f"{GIB}\n"}, 3 * GIB),
        (
            {
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2 * GIB}",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{GIB}",
            },
            GIB,
        ),
        ({}, None),
    ],
)
def test_the_least_of_machine_and_control_group_counts(
    tmp_path: Path, files: dict[str, str], expected: int | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert available_bytes(tmp_path) == expected


def test_code_takes_more_than_memory() -> None:
    # T5 1.1 base, all layers, has 37,000 operations: 2.8 GiB were measured until memory, 10.8 GiB until code.
    assert 2.8 * GIB < needed_bytes(37_000, Until.MEMORY) < 4 * GIB
    assert 10.8 * GIB < needed_bytes(37_000, Until.CODE) < 13 * GIB
