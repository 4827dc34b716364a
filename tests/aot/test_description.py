"""The description of a program: padding by the model's axes, and the size of its code or a bound for it."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from pretend_compiler import GIB, SPEC, PretendCompiler, planned

from t5x_harness.aot.account import CODE_OF_A_PRODUCT, ProgramAccount, account_of
from t5x_harness.aot.costs import ProductSize
from t5x_harness.aot.memory import PaddedSize
from t5x_harness.aot.numbers import AotNumbers, PaddingNumbers
from t5x_harness.aot.request import axis_sizes
from t5x_harness.aot.stage import describe, judge, names_by_size
from t5x_harness.findings.stage_report import StageReport
from t5x_harness.plan.arrays import Leaf
from t5x_harness.slices.slice import get_slice
from t5x_harness.spec import Severity, Stage, StageResult

RUN = planned()
V3 = get_slice("v3-8")
PRODUCTS = 625
"""The number of products of a program whose code may take 625 MiB."""
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


def account(
    needed: int = 100_000, code: int | None = None, weights: Sequence[float] = (1.0,), **lost: tuple[Any, ...]
) -> ProgramAccount:
    """Returns the account of a program that needs memory in addition to its code, with given padding or products."""
    (step, _) = RUN.programs
    compiled = PretendCompiler(lambda program, bound: needed).compile(step, SPEC, None)
    sizes = lost.get("product_sizes", ())
    compiled = dataclasses.replace(
        compiled,
        result=dataclasses.replace(compiled.result, code_bytes=code),
        memory=dataclasses.replace(compiled.memory, padding=lost.get("padding", ())),
        costs=dataclasses.replace(compiled.costs, products=PRODUCTS, product_sizes=sizes),
    )
    return account_of(step, [compiled] * len(weights), weights)


def described(of: ProgramAccount, slice_: str = "v3-8", **axes: tuple[int, ...]) -> StageResult:
    report = StageReport(Stage.AOT)
    describe(of, dataclasses.replace(RUN, axes=axes), get_slice(slice_), {}, report)
    return report.result()


def test_what_costs_a_part_of_the_peak_is_shown_and_in_the_numbers() -> None:
    result = described(account(padding=(PaddedSize(1000, 1024, 4, 20_000), PaddedSize(6, 8, 1, 499))), mlp=(1000,))
    assert dict(result.facts)["train: padding"] == (
        "axis  size  in tiles     bytes  of the peak\nmlp   1000      1024  19.5 KiB        20.0%"
    )
    assert AotNumbers(result).train.padding == [PaddingNumbers("mlp", 1000, 1024, 20_000)]


def test_padding_of_few_layers_is_about_right() -> None:
    result = described(account(weights=(0.5, 0.5), padding=(PaddedSize(1000, 1024, 4, 20_000),)), mlp=(1000,))
    assert dict(result.facts)["train: padding"].splitlines()[0] == "axis  size  in tiles  bytes, about  of the peak"


def test_work_on_zeros_is_shown_by_what_is_contracted() -> None:
    sizes = (
        ProductSize(512, (512, 512), 1, 8000),
        ProductSize(64, (512, 512), 2, 500),
        ProductSize(64, (512, 64), 2, 500),
    )
    of = {name: described(account(product_sizes=sizes), name, kv=(64,), embed=(512,)) for name in ("v3-8", "v6e-8")}
    head = "axis  contracted  of their work on padding, at least\n"
    assert dict(of["v3-8"].facts)["train: matrix units of 128 x 128"] == head + "kv            64" + "10.0%".rjust(36)
    assert AotNumbers(of["v3-8"]).train.matrix_unit_padding == pytest.approx(0.1)
    assert "kv            64" + "25.0%".rjust(36) in dict(of["v6e-8"].facts)["train: matrix units of 256 x 256"]


def test_padding_that_costs_little_is_not_shown() -> None:
    result = described(account(padding=(PaddedSize(6, 8, 1, 499),)))
    assert "train: padding" not in dict(result.facts)
    assert AotNumbers(result).train.padding == []


def test_code_is_a_row_of_what_has_to_fit() -> None:
    of = account(4 * GIB, code=GIB // 2)
    result = described(of)
    rows = dict(result.facts)["train: memory of each device"].splitlines()
    assert [row.split() for row in rows if row.startswith(("code", "all"))] == [
        ["code", "512", "MiB"],
        *[["all", "4.5", "GiB", *"29.1% of the 15.5 GiB that a program may use".split()]],
    ]
    measures = {each.name: each.value for each in result.measures}
    assert (measures["code"], measures["hbm_needed"]) == (GIB // 2, 4.5 * GIB)
    assert "code_up_to" not in measures
    assert not list(judge(of, RUN, V3))


def test_code_that_was_not_generated_has_a_row_with_its_bound() -> None:
    result = described(account(4 * GIB))
    rows = dict(result.facts)["train: memory of each device"].splitlines()
    (row,) = [row.split() for row in rows if row.startswith("code")]
    assert row == "code - up to 625 MiB, not counted: --aot=full generates it".split()
    measures = {each.name: each.value for each in result.measures}
    assert (measures["code_up_to"], measures["hbm_needed"]) == (PRODUCTS * CODE_OF_A_PRODUCT, 4 * GIB)
    assert "code" not in measures
    assert "the size of the programs' code: none was generated; --aot=full does" in result.not_checked


def test_a_program_whose_code_may_not_fit_is_warned_of() -> None:
    (finding,) = judge(account(15 * GIB), RUN, V3)
    assert (finding.code, finding.severity, finding.fix) == (
        "AOT05",
        Severity.WARNING,
        "compile to the machine's code: --aot=full",
    )
    assert finding.message == (
        "train needs 15.00 GiB of the 15.48 GiB that a program may use on each device of v3-8, without its code, which "
        "was not generated: up to 0.61 GiB, judging by other programs, and 0.48 GiB are left"
    )
    assert not list(judge(account(14 * GIB), RUN, V3))


def test_with_its_code_known_a_program_either_fits_or_does_not() -> None:
    assert not list(judge(account(15 * GIB, code=GIB // 4), RUN, V3))
    (finding,) = judge(account(15 * GIB, code=GIB // 2), RUN, V3)
    assert finding.code == "AOT01"


def test_few_layers_that_close_to_the_limit_come_first() -> None:
    (finding,) = judge(account(int(15.2 * GIB), weights=(0.5, 0.5)), RUN, V3)
    assert (finding.code, finding.fix) == ("AOT05", "compile all layers: --aot=memory")
    assert finding.message == (
        "train needs about 15.20 GiB of the 15.48 GiB that a program may use on each device of v3-8: so close to the "
        "limit, numbers extrapolated from few layers do not decide"
    )
    (finding,) = judge(account(int(14.9 * GIB), weights=(0.5, 0.5)), RUN, V3)
    assert finding.fix == "compile to the machine's code: --aot=full"
