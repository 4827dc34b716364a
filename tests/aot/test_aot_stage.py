"""The aot stage with the TPU's compiler: its report on a run, and on the changes that fit."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import t5x_in_use
from local_run import LocalRun

from t5x_harness.aot import libtpu
from t5x_harness.aot.rules import AOT01
from t5x_harness.aot.search import FitGrid, Fits, FitSearch, smallest
from t5x_harness.aot.variants import advise
from t5x_harness.findings.rule import FILES, training
from t5x_harness.slices.slice import get_slice
from t5x_harness.spec import AotMode, Outcome, RunSettings, RunSpec, Stage, StageResult
from t5x_harness.variables import CACHE_VARIABLE
from t5x_harness.workers.zygote import Zygote

pytestmark = pytest.mark.skipif(not libtpu.is_installed(), reason="libtpu is not installed")

CompiledProgram = Callable[..., StageResult]

T5_SMALL = """\
from __gin__ import dynamic_registration
import __main__ as {mode}_script
import seqio
from t5x import partitioning
from t5x import utils
from t5x.examples.t5 import network
include 't5x/examples/t5/t5_1_1/small.gin'
include 't5x/configs/runs/{run}.gin'
import counting
MIXTURE_OR_TASK_NAME = 'counting'
TASK_FEATURE_LENGTHS = {{'inputs': 512, 'targets': 114}}
DROPOUT_RATE = {dropout}
BATCH_SIZE = {batch}
USE_CACHED_TASKS = False
VOCABULARY = @seqio.ByteVocabulary()
network.T5Config.num_encoder_layers = 2
network.T5Config.num_decoder_layers = 2
"""

EVALUATED = (
    "CHECKPOINT_PATH = 'gs://my-bucket/checkpoint_10'",
    "EVAL_OUTPUT_DIR = 'evaluated'",
    "utils.DatasetConfig.split = 'validation'",
    "utils.DatasetConfig.batch_size = 32",
)


@pytest.fixture
def compiled(zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CompiledProgram:
    """Returns a function that compiles a config; the results are kept for this test."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "kept"))
    (tmp_path / "counting.py").write_text(FILES["counting.py"], encoding="utf-8")

    def compile_ahead(gin: str, *bindings: str, aot: AotMode = AotMode.MEMORY, slice: str = "v3-8") -> StageResult:
        (tmp_path / "run.gin").write_text(gin, encoding="utf-8")
        spec = RunSpec(
            ("run.gin",),
            bindings,
            slice=slice,
            runtime=t5x_in_use.name,
            python_path=(str(tmp_path),),
            cwd=str(tmp_path),
            settings=RunSettings(aot=aot),
        )
        with LocalRun(spec, zygote=zygote, workspace=tmp_path / "run", timeout=600) as backend:
            return backend.stage(Stage.AOT)

    return compile_ahead


def measure(result: StageResult, name: str, of: str) -> float:
    (value,) = [found.value for found in result.measures if (found.name, found.of) == (name, of)]
    return value


def test_a_run_is_compiled_once_and_kept(compiled: CompiledProgram) -> None:
    first = compiled(training("TRAIN_STEPS = 1000").gin)
    assert first.outcome is Outcome.PASSED, first.findings
    assert first.exercised == 2
    facts = dict(first.facts)
    assert facts["train: compiled"].startswith("all layers, ")
    assert "headroom" in facts["train: memory of each device"]
    assert "all-reduce  data" in facts["train: collectives of each device"]
    assert "chip-hours" in facts["train: time"]
    assert measure(first, "hbm_usable", "train") == int(15.48 * 2**30)
    needed, usable = measure(first, "hbm_needed", "train"), measure(first, "hbm_usable", "train")
    assert measure(first, "hbm_headroom", "train") == usable - needed

    again = compiled(training("TRAIN_STEPS = 1000").gin)
    assert dict(again.facts)["train: compiled"] == "all layers, kept from an earlier run"
    assert measure(again, "hbm_peak", "train") == measure(first, "hbm_peak", "train")


def test_gradients_are_kept_over_microbatches(compiled: CompiledProgram) -> None:
    gin = training("trainer.Trainer.num_microbatches = 2").gin
    result = compiled(gin.replace("import seqio\n", "import seqio\nfrom t5x import trainer\n"))
    assert result.outcome is Outcome.PASSED, result.findings
    begin = "train/"
    kinds = {m.of: m.value for m in result.measures if m.name == "hbm_at_peak" and m.of[: len(begin)] == begin}
    assert kinds["train/gradients"] == pytest.approx(kinds["train/parameters"], rel=0.1)
    assert sum(kinds.values()) == measure(result, "hbm_peak", "train")


def test_few_layers_tell_of_many(compiled: CompiledProgram) -> None:
    layers = [f"network.T5Config.num_{stack}_layers = 8" for stack in ("encoder", "decoder")]
    drawn = compiled(training().gin, *layers, aot=AotMode.DEPTHS)
    whole = compiled(training().gin, *layers, aot=AotMode.MEMORY)
    assert dict(drawn.facts)["train: compiled"].startswith("extrapolated from 2 and 6 layers to ")
    assert measure(drawn, "flops_of_a_device", "train") == pytest.approx(
        measure(whole, "flops_of_a_device", "train"), rel=0.01
    )
    assert measure(drawn, "hbm_peak", "train") == pytest.approx(measure(whole, "hbm_peak", "train"), rel=0.03)


def test_lowering_alone_says_that_nothing_was_compiled(compiled: CompiledProgram) -> None:
    result = compiled(training().gin, aot=AotMode.LOWER)
    assert dict(result.facts)["train"] == "can be lowered for v3-8"
    assert "whether train fits v3-8: it was lowered, and not compiled" in result.not_checked


@pytest.mark.parametrize(
    ("program", "mode", "run", "batch", "peak"),
    [("train_eval", "train", "pretrain", 128, 0.396), ("predict", "eval", "eval", 32, 0.244)],
)
def test_peaks_are_those_that_were_measured(
    compiled: CompiledProgram, program: str, mode: str, run: str, batch: int, peak: float
) -> None:
    # T5 1.1 small with 2 layers, on v3-8: the figures of libtpu 0.0.51 for T5X's own steps.
    gin = T5_SMALL.format(mode=mode, run=run, batch=batch, dropout=0.1 if mode == "train" else 0.0)
    result = compiled(gin, *(("TRAIN_STEPS = 10",) if mode == "train" else EVALUATED))
    assert result.outcome is Outcome.PASSED, result.findings
    assert measure(result, "hbm_peak", program) / 2**30 == pytest.approx(peak, rel=0.03)


@pytest.mark.stack
@pytest.mark.journey
def test_a_config_fits_with_what_fit_says_and_the_advice_is_the_same(
    zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("T5X_HARNESS_CACHE_DIR", str(tmp_path / "cache"))
    for name, text in {**AOT01.bad.files, "run.gin": AOT01.bad.gin}.items():
        (tmp_path / name).write_text(text)
    spec = RunSpec(
        ("run.gin",),
        runtime=t5x_in_use.name,
        python_path=(str(tmp_path),),
        cwd=str(tmp_path),
        settings=RunSettings(aot=AotMode.MEMORY),
    )
    with LocalRun(spec, zygote=zygote, workspace=tmp_path / "run", timeout=600) as backend:
        assert backend.stage(Stage.PLAN).outcome is Outcome.PASSED
        run, compiler = backend.executor.aot(backend)
        train = run.programs[0]
        search = FitSearch(run, spec, compiler, 48.0, {}, lambda number, of, variant: None)
        grid = FitGrid(["v3-8"], microbatches=(1, 2), programs=("train",))
        rows = list(search.rows(grid))
        assert [row.fits for row in rows] == [Fits.NO, Fits.YES]
        best = smallest(rows)
        assert best.changes == "trainer.Trainer.num_microbatches = 2"
        assert best.needed_bytes < get_slice("v3-8").usable_hbm_bytes < (rows[0].needed_bytes or 0)

        # Everything was compiled before, so even a compiler that cannot compile has the results.
        notes: list[str] = []
        kept = dataclasses.replace(compiler, on_progress=lambda event: notes.append(str(event["note"])))
        fix, _ = advise(train, run, spec, kept)
        assert fix == f"{best.changes}: {best.needed_bytes / 2**30:.2f} GiB, compiled"
        assert list(dataclasses.replace(search, compiler=kept).rows(grid)) == rows
        assert [note for note in notes if note.startswith("compiling")] == []
        assert len([note for note in notes if note.startswith("lowering")]) == 3
