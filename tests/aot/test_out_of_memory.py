"""A config that does not fit a TPU, and the same one with what `fit` says, through the TPU's own compiler."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import t5x_in_use
from local_run import LocalRun

from t5x_harness.aot import libtpu
from t5x_harness.aot.compiling import Compiler
from t5x_harness.aot.rules.programs import AOT01
from t5x_harness.aot.search import FitGrid, Fits, FitSearch, smallest
from t5x_harness.aot.variants import advise
from t5x_harness.slices.slice import get_slice
from t5x_harness.spec import AotMode, Outcome, RunSettings, RunSpec, Stage
from t5x_harness.workers import Zygote

pytestmark = [
    pytest.mark.stack,
    pytest.mark.journey,
    pytest.mark.skipif(not libtpu.is_installed(), reason="libtpu is not installed"),
]


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
        assert best is not None
        assert best.changes == "trainer.Trainer.num_microbatches = 2"
        assert best.needed_bytes is not None
        assert best.needed_bytes < get_slice("v3-8").usable_hbm_bytes < (rows[0].needed_bytes or 0)

        # All of it was compiled before: a compiler that cannot compile has it.
        notes: list[str] = []
        kept = dataclasses.replace(compiler, on_progress=lambda event: notes.append(str(event["note"])))
        assert isinstance(kept, Compiler)
        advice = advise(train, run, spec, kept)
        assert advice.fix == f"{best.changes}: {best.needed_bytes / 2**30:.2f} GiB, compiled"
        assert list(dataclasses.replace(search, compiler=kept).rows(grid)) == rows
        assert [note for note in notes if note.startswith("compiling")] == []
        assert len([note for note in notes if note.startswith("lowering")]) == 3
