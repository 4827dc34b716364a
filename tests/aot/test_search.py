"""`fit` searches for what fits: the combinations that it compiles or leaves out and why, and the best results."""

import json
from pathlib import Path
from typing import Any

import pytest
from pretend_compiler import GIB, SPEC, FakeRun, PretendCompiler, by_examples, planned

from t5x_harness.aot.compiling import Compiler
from t5x_harness.aot.libtpu import CompilerResult, CompilerVerdict
from t5x_harness.aot.request import AotRun, Knob, ProgramSpec
from t5x_harness.aot.search import FitGrid, FitRow, Fits, FitSearch, cheapest, smallest
from t5x_harness.aot.variants import RunVariant, VariantRefused, tune
from t5x_harness.commands.fit_output import FitReport, as_json, as_table
from t5x_harness.slices.slice import get_slice

TRAIN = ("train",)


def search(run: AotRun, compiler: Any, hours: float = 48.0) -> FitSearch:
    return FitSearch(run, SPEC, compiler, hours, {}, lambda number, of, variant: None)


def results(rows: list[FitRow]) -> list[tuple[Any, ...]]:
    return [(row.variant.slice, row.variant.batch_size, row.variant.num_microbatches, row.fits.value) for row in rows]


def test_more_microbatches_than_fit_are_not_compiled_unless_asked_for() -> None:
    compiler = PretendCompiler(by_examples(GIB // 2))
    grid = FitGrid(["v3-8"], microbatches=(4, 1, 2, 8), programs=TRAIN)
    rows = list(search(planned(), compiler).rows(grid))
    assert [(row.variant.num_microbatches, row.fits, row.why) for row in rows] == [
        (1, Fits.NO, ""),
        (2, Fits.NO, ""),
        (4, Fits.YES, ""),
        (8, Fits.LEFT_OUT, "it fits with 4 microbatches already"),
    ]
    assert len(compiler.calls) == 3
    assert (rows[0].needed_bytes, rows[2].needed_bytes) == (32 * GIB, 8 * GIB)
    assert rows[2].headroom_bytes == get_slice("v3-8").usable_hbm_bytes - 8 * GIB
    every = list(search(planned(), compiler).rows(FitGrid(["v3-8"], microbatches=(4, 8), programs=TRAIN, every=True)))
    assert [row.fits for row in every] == [Fits.YES, Fits.YES]


def test_a_larger_batch_than_one_that_does_not_fit_is_not_compiled() -> None:
    compiler = PretendCompiler(by_examples(GIB // 2), limit=16 * GIB)
    rows = list(search(planned(), compiler).rows(FitGrid(["v3-8"], batches=(128, 64, 16), programs=TRAIN)))
    assert results(rows) == [
        ("v3-8", 16, 1, "fits"),
        ("v3-8", 64, 1, "does not fit"),
        ("v3-8", 128, 1, "does not fit"),
    ]
    assert rows[1].needed_bytes == 32 * GIB  # the compiler's own figure
    assert rows[2].why == "a batch of 64 does not fit either"
    assert len(compiler.calls) == 2


@pytest.mark.parametrize(
    ("variant", "run", "why"),
    [
        (RunVariant(num_partitions=3), planned(), "T5X has no default submesh for num_partitions=3 on TPU v3 (v3-8)"),
        (RunVariant(batch_size=12), planned(), "the batch of 12 does not divide over the 8 positions of the data axis"),
        (RunVariant(num_microbatches=3), planned(), "the batch of 64 does not divide into 3 microbatches"),
        (
            RunVariant(num_microbatches=16),
            planned(),
            "the 4 examples of a microbatch do not divide over the 8 positions of the data axis",
        ),
        (
            RunVariant(),
            planned(state=40 * GIB),
            "the train state of train alone: 40 GiB on each device, of the 15.5 GiB that a program may use",
        ),
        (RunVariant(remat_policy="full"), planned(), "the config has no remat_policy to set"),
    ],
)
def test_what_arithmetic_refuses_is_not_compiled(variant: RunVariant, run: AotRun, why: str) -> None:
    with pytest.raises(VariantRefused) as refused:
        tune(run, SPEC, variant, run.programs)
    assert str(refused.value).startswith(why)
    compiler = PretendCompiler(by_examples(1))
    grid = FitGrid(
        ["v3-8"],
        (variant.num_partitions,),
        (variant.batch_size,),
        (variant.remat_policy,),
        (variant.num_microbatches,),
        TRAIN,
    )
    (row,) = search(run, compiler).rows(grid)
    assert (row.fits, row.why) == (Fits.REFUSED, str(refused.value))
    assert compiler.calls == []


def test_partitions_cut_the_state_and_v5e_gets_a_submesh() -> None:
    run = planned(state=40 * GIB)
    tuned = tune(run, SPEC, RunVariant(num_partitions=4), run.programs)
    assert tuned.run.state_bytes == {"train": 10 * GIB, "predict": 10 * GIB // 4}
    assert tuned.changes == "partitioning.PjitPartitioner.num_partitions = 4"
    there = tune(run, SPEC, RunVariant(slice="v5e-16", num_partitions=4), run.programs)
    assert there.spec.bindings == (
        "partitioning.PjitPartitioner.num_partitions = 4",
        "partitioning.PjitPartitioner.model_parallel_submesh = (2, 2, 1, 1)",
    )
    assert (there.spec.slice, there.run.mesh) == ("v5e-16", {"data": 4, "model": 4})


def test_only_datasets_that_share_the_batch_size_get_another() -> None:
    run = planned()
    own = ProgramSpec(
        "predict", "", "", {"decoder_target_tokens": (16, 100)}, {}, "infer_eval/DatasetConfig.batch_size"
    )

    tuned = tune(run, SPEC, RunVariant(batch_size=32), (run.programs[0], own))
    assert [program.shapes["decoder_target_tokens"][0] for program in tuned.run.programs] == [32, 16]


def test_all_programs_have_to_fit_and_the_largest_is_named() -> None:
    compiler = PretendCompiler(lambda program, bound: (20 if program.name == "predict" else 5) * GIB)
    (row,) = search(planned(), compiler).rows(FitGrid(["v3-8"]))
    assert (row.fits, row.program, row.needed_bytes) == (Fits.NO, "predict", 20 * GIB)
    (row,) = search(planned(), compiler).rows(FitGrid(["v3-8"], programs=TRAIN))
    assert (row.fits, row.program, row.needed_bytes) == (Fits.YES, "train", 5 * GIB)


def test_larger_slices_are_left_out_once_one_holds_it_and_ends_in_time() -> None:
    slices = ["v3-8", "v3-32", "v3-64", "v3-128"]

    def tried(hours: float, steps: int | None = 1000) -> list[str | None]:
        rows = search(planned(steps=steps), PretendCompiler(lambda program, bound: GIB), hours).rows(
            FitGrid(slices[:3], programs=TRAIN, stop=True)
        )
        return [row.variant.slice for row in rows]

    assert tried(hours=1) == ["v3-8"]
    assert tried(hours=0.01) == slices[:3]  # each of them takes 0.4 h at the slow end
    assert tried(hours=0.01, steps=None) == ["v3-8"]


def test_the_smallest_and_the_cheapest() -> None:
    compiler = PretendCompiler(by_examples(GIB // 8))
    rows = list(search(planned(), compiler).rows(FitGrid(["v3-8", "v2-8", "v3-32"], programs=TRAIN)))
    assert results(rows) == [
        ("v3-8", 64, 1, "fits"),
        ("v2-8", 64, 1, "does not fit"),
        ("v3-32", 64, 1, "fits"),
    ]
    assert smallest(rows) is rows[0]
    assert cheapest(rows, 48) is rows[0]
    assert cheapest(rows, 0.01) is None
    found = FitReport(SPEC, 48, {}, rows, TRAIN, planned())
    text = as_table(found)
    assert "the smallest slice that holds it: v3-8 (train needs 8 GiB of 15.5 GiB)" in text
    assert "needs: the peak, and the gaps between temporary values, which the compiler reserves, too" in text
    assert "the cheapest that ends within 48 h: v3-8 (1000 steps in 0.222 to 0.4 h, 1.78 to 3.2 USD)" in text
    narrow = as_table(found, width=72)
    assert max(map(len, narrow.splitlines())) <= 72
    assert all(" ".join(row.why.split()) in " ".join(narrow.split()) for row in rows)
    found.hours = 0.01
    assert "none of those that fit ends within 0.01 h at the slow end" in as_table(found)
    whole = json.loads(as_json(found))
    assert (whole["smallest"], whole["cheapest"], len(whole["rows"])) == (0, None, 3)
    first = whole["rows"][0]
    assert (first["slice"], first["hbm_needed_bytes"], first["result"]) == ("v3-8", 8 * GIB, "fits")
    assert first["step_seconds"]["bound"] == pytest.approx(0.36)
    assert first["usd"] == {"bound": pytest.approx(0.8), "best": pytest.approx(0.8 / 0.45), "worst": pytest.approx(3.2)}


def test_ctrl_c_keeps_what_is_known() -> None:
    def needs(_program: ProgramSpec, bound: dict[str, str]) -> int:
        if "trainer.Trainer.num_microbatches" in bound:
            raise KeyboardInterrupt
        return 20 * GIB

    rows: list[FitRow] = []
    grid = FitGrid(["v3-8"], microbatches=(1, 2, 4), programs=TRAIN)
    with pytest.raises(KeyboardInterrupt):
        rows.extend(search(planned(), PretendCompiler(needs)).rows(grid))
    assert results(rows) == [("v3-8", 64, 1, "does not fit")]
    found = FitReport(SPEC, 48, {}, rows, TRAIN, planned(), is_complete=False)
    assert "interrupted: 1 combination is known" in as_table(found)


def test_a_second_search_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T5X_HARNESS_CACHE_DIR", str(tmp_path / "cache"))
    said = "total (20.00G) exceeds available HBM (15.48G)"
    run = FakeRun(CompilerResult(CompilerVerdict.OUT_OF_MEMORY, said))
    for _ in range(2):
        compiler = Compiler(lambda folder, spec: run, tmp_path / "aot")
        (row,) = search(planned(), compiler).rows(FitGrid(["v3-8"], programs=TRAIN))
        assert (row.fits, row.needed_bytes) == (Fits.NO, 20 * GIB)
        assert run.called.count("compile") == 1


def test_remat_that_saves_more_is_left_out_where_less_fits() -> None:
    run = planned(remat_policy=Knob("network.T5Config.remat_policy", "'none'", None))
    grid = FitGrid(["v3-8"], remat=("full", "none"), programs=TRAIN)
    rows = list(search(run, PretendCompiler(by_examples(1))).rows(grid))
    assert [(row.variant.remat_policy, row.fits, row.why) for row in rows] == [
        ("none", Fits.YES, ""),
        ("full", Fits.LEFT_OUT, "it fits with 1 microbatch and remat none already"),
    ]
