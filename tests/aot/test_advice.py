"""AOT01 names the smallest change that compiles and fits."""

import dataclasses
from pathlib import Path

from pretend_compiler import GIB, SPEC, PretendCompiler, by_examples, planned

from t5x_harness.aot.request import Knob, ProgramSpec
from t5x_harness.aot.stage import compile_run
from t5x_harness.aot.variants import advise
from t5x_harness.report.table import verdicts
from t5x_harness.spec import Edit, Location

MICROBATCHES = "trainer.Trainer.num_microbatches"


def test_microbatches_come_first_until_they_fit() -> None:
    run = planned()
    compiler = PretendCompiler(by_examples(GIB // 2), limit=16 * GIB)
    notes: list[str] = []
    compiler.on_progress = lambda event: notes.append(event["note"])
    fix, edits = advise(run.programs[0], run, SPEC, compiler)
    assert fix == f"{MICROBATCHES} = 4: 8.00 GiB, compiled; tried before: {MICROBATCHES} = 2 (16.00 GiB)"
    assert edits == ()  # no line binds it
    assert [bindings for _, _, bindings in compiler.calls] == [(f"{MICROBATCHES} = 2",), (f"{MICROBATCHES} = 4",)]
    assert notes == [f"train does not fit; trying {MICROBATCHES} = {number}" for number in (2, 4)]


def test_what_does_not_help_a_program_is_not_tried_for_it() -> None:
    run = planned()
    compiler = PretendCompiler(by_examples(GIB // 4))
    fix, _ = advise(run.programs[1], run, SPEC, compiler)
    partitions = "partitioning.PjitPartitioner.num_partitions"
    assert fix == (
        f"BATCH_SIZE = 32: 8.00 GiB, compiled; tried before: {partitions} = 2 (16.00 GiB), {partitions} = 4 (16.00 GiB)"
    )


def test_remat_is_tried_where_the_network_has_it_and_only_what_saves_more() -> None:
    def needs(_program: ProgramSpec, bound: dict[str, str]) -> int:
        return 10 * GIB if bound.get("network.T5Config.remat_policy") == "'full'" else 20 * GIB

    run = planned(batch=8, remat_policy=Knob("network.T5Config.remat_policy", "'minimal'", None))
    compiler = PretendCompiler(needs)
    fix, _ = advise(run.programs[0], run, SPEC, compiler)
    assert fix == "network.T5Config.remat_policy = 'full': 10.00 GiB, compiled"  # 8 examples on 8 devices
    assert len(compiler.calls) == 1


def test_where_nothing_fits_it_says_what_was_tried_and_stops() -> None:
    run = planned()
    compiler = PretendCompiler(lambda program, bound: 20 * GIB)
    fix, edits = advise(run.programs[0], run, SPEC, compiler)
    tried = [
        *(f"{MICROBATCHES} = {number} (20.00 GiB)" for number in (2, 4, 8)),
        *(f"partitioning.PjitPartitioner.num_partitions = {number} (20.00 GiB)" for number in (2, 4)),
        *("BATCH_SIZE = 32 (20.00 GiB)", "--slice=v3-32 (20.00 GiB)"),
    ]
    assert fix == f"none of these is enough: {', '.join(tried)}; t5x-harness fit tries more"
    assert compiler.calls[-1] == ("train", "v3-32", ())
    assert edits == ()


def test_the_line_that_binds_it_is_edited(tmp_path: Path) -> None:
    (tmp_path / "run.gin").write_text("BATCH_SIZE = 64  # examples\ntrainer.Trainer.num_microbatches = None\n")

    spec = dataclasses.replace(SPEC, cwd=str(tmp_path))
    bound = planned(num_microbatches=Knob(MICROBATCHES, "None", Location("run.gin", 2)))
    compiler = PretendCompiler(by_examples(GIB // 4))
    assert advise(bound.programs[0], bound, spec, compiler)[1] == (Edit("run.gin", 2, 2, f"{MICROBATCHES} = 2\n"),)
    halved = planned(
        num_microbatches=Knob(MICROBATCHES, "8", None), num_partitions=Knob("num_partitions", "None", None)
    )
    compiler = PretendCompiler(
        lambda program, bound: (20 if program.shapes["decoder_target_tokens"][0] > 32 else 1) * GIB
    )
    edit = Edit("run.gin", 1, 1, "BATCH_SIZE = 32  # examples\n")
    assert advise(halved.programs[1], halved, spec, compiler)[1] == (edit,)


def test_what_a_refused_program_needs_is_a_measure_and_what_the_compiler_says_a_fact() -> None:
    run = dataclasses.replace(planned(), programs=planned().programs[:1])
    compiler = PretendCompiler(lambda program, bound: 20 * GIB, limit=16 * GIB)
    result = compile_run(run, SPEC.with_settings(ignore=("AOT01",)), compiler)
    assert dict(result.facts)["train: the compiler says"] == (
        "total memory required (20.00G) exceeds available HBM (15.48G)"
    )
    usable = int(15.48 * GIB)
    assert {measure.name: measure.value for measure in result.measures if measure.of == "train"} == {
        "fits": 0,
        "hbm_needed": 20 * GIB,
        "hbm_usable": usable,
        "hbm_headroom": usable - 20 * GIB,
    }
    assert [*verdicts(result)] == ["train does not fit, 20 GiB needed of 15.5 GiB"]
    assert len(compiler.calls) == 1  # an ignored finding gets no advice, which would compile
