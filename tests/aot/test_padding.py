"""Waste by padding: sizes are named by the model's axes, and shown where they cost something."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from pretend_compiler import SPEC, PretendCompiler, planned

from t5x_harness.aot.account import account_of
from t5x_harness.aot.convolutions import ProductSize
from t5x_harness.aot.description import describe, names_by_size
from t5x_harness.aot.memory import PaddedSize
from t5x_harness.aot.numbers import AotNumbers, PaddingNumbers
from t5x_harness.aot.request import axis_sizes
from t5x_harness.findings.stage_report import StageReport
from t5x_harness.plan.arrays import Leaf
from t5x_harness.slices.slice import get_slice
from t5x_harness.spec import Stage, StageResult

MESH = {"data": 4, "model": 2}
FLOAT = np.dtype(np.float32)
LEAVES = (
    Leaf("target/decoder/wo/kernel", (1000, 512), FLOAT, ("model", None), ("mlp", "embed")),
    Leaf("target/decoder/query/kernel", (512, 384), FLOAT, (None, "model"), ("embed", "joined_kv")),
    Leaf("target/decoder/relpos_bias", (6, 32), FLOAT, ("model", None), ("heads", "relpos_buckets")),
    Leaf("state/param_states/decoder/wo/kernel/v_row", (7,), FLOAT, (), ("other",)),
)


def test_sizes_of_axes_are_those_on_a_device() -> None:
    assert axis_sizes(LEAVES, MESH) == {
        "mlp": (500,),
        "embed": (512,),
        "joined_kv": (192,),
        "heads": (3,),
        "relpos_buckets": (32,),
        "kv": (64,),  # of one head
    }


def test_a_size_has_the_name_of_each_axis_that_has_it() -> None:
    (step, _) = planned(batch=64).programs
    step = dataclasses.replace(step, shapes={"encoder_input_tokens": (64, 512), "decoder_target_tokens": (64, 114)})
    names = names_by_size(axis_sizes(LEAVES, MESH), step)
    assert names[500] == "mlp"
    assert names[512] == "embed or length of inputs"
    assert names[114] == "length of targets"
    assert names[64] == "kv"
    assert 7 not in names


def described(*padding: PaddedSize, weights: tuple[float, ...] = (1.0,)) -> StageResult:
    run = dataclasses.replace(planned(), axes={"mlp": (1000,)})
    (step, _) = run.programs
    compiled = PretendCompiler(lambda program, bound: 100_000).compile(step, SPEC, None)
    assert compiled.memory is not None
    compiled = dataclasses.replace(compiled, memory=dataclasses.replace(compiled.memory, padding=padding))
    report = StageReport(Stage.AOT)
    describe(account_of(step, [compiled] * len(weights), weights), run, get_slice("v3-8"), {}, report)
    return report.result()


def test_what_costs_a_part_of_the_peak_is_shown_and_in_the_numbers() -> None:
    result = described(PaddedSize(1000, 1024, 4, 20_000), PaddedSize(6, 8, 1, 499))
    assert dict(result.facts)["train: padding"] == (
        "axis  size  in tiles     bytes  of the peak\nmlp   1000      1024  19.5 KiB        20.0%"
    )
    assert AotNumbers(result).train.padding == [PaddingNumbers("mlp", 1000, 1024, 20_000)]


def test_padding_of_few_layers_is_about_right() -> None:
    result = described(PaddedSize(1000, 1024, 4, 20_000), weights=(0.5, 0.5))
    assert dict(result.facts)["train: padding"].splitlines()[0] == "axis  size  in tiles  bytes, about  of the peak"


def test_work_on_zeros_is_shown_by_what_is_contracted() -> None:
    run = dataclasses.replace(planned(), axes={"kv": (64,), "embed": (512,)})
    (step, _) = run.programs
    compiled = PretendCompiler(lambda program, bound: 100_000).compile(step, SPEC, None)
    assert compiled.costs is not None
    sizes = (
        ProductSize(512, (512, 512), 1, 8000),
        ProductSize(64, (512, 512), 2, 500),
        ProductSize(64, (512, 64), 2, 500),
    )
    compiled = dataclasses.replace(compiled, costs=dataclasses.replace(compiled.costs, product_sizes=sizes))

    def of(slice_: str) -> StageResult:
        report = StageReport(Stage.AOT)
        describe(account_of(step, [compiled], [1.0]), run, get_slice(slice_), {}, report)
        return report.result()

    head = "axis  contracted  of their work on padding, at least\n"
    assert dict(of("v3-8").facts)["train: matrix units of 128 x 128"] == head + "kv            64" + "10.0%".rjust(36)
    assert AotNumbers(of("v3-8")).train.matrix_unit_padding == pytest.approx(0.1)
    assert "kv            64" + "25.0%".rjust(36) in dict(of("v6e-8").facts)["train: matrix units of 256 x 256"]


def test_padding_that_costs_little_is_not_shown() -> None:
    result = described(PaddedSize(6, 8, 1, 499))
    assert "train: padding" not in dict(result.facts)
    assert AotNumbers(result).train.padding == []
