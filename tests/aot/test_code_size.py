"""The size of a program's code: a row of its memory where it was generated, and a bound that is warned of where not."""

from __future__ import annotations

import dataclasses

from pretend_compiler import GIB, SPEC, PretendCompiler, planned

from t5x_harness.aot.account import CODE_OF_A_PRODUCT, ProgramAccount, account_of
from t5x_harness.aot.description import describe
from t5x_harness.aot.stage import judge
from t5x_harness.findings.stage_report import StageReport
from t5x_harness.slices.slice import get_slice
from t5x_harness.spec import Severity, Stage, StageResult

RUN = planned()
V3 = get_slice("v3-8")
PRODUCTS = 625
"""Of a program whose code may take 625 MiB."""


def account(needed: int, code: int | None = None, *, extrapolated: bool = False) -> ProgramAccount:
    """Returns the account of a program that needs some memory beside its code."""
    (step, _) = RUN.programs
    compiled = PretendCompiler(lambda program, bound: needed).compile(step, SPEC, None)
    assert compiled.costs is not None
    compiled = dataclasses.replace(
        compiled,
        result=dataclasses.replace(compiled.result, code_bytes=code),
        costs=dataclasses.replace(compiled.costs, products=PRODUCTS),
    )
    return account_of(step, *(([compiled] * 2, [0.5, 0.5]) if extrapolated else ([compiled], [1.0])))


def described(of: ProgramAccount) -> StageResult:
    report = StageReport(Stage.AOT)
    describe(of, RUN, V3, {}, report)
    return report.result()


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
    (finding,) = judge(account(int(15.2 * GIB), extrapolated=True), RUN, V3)
    assert (finding.code, finding.fix) == ("AOT05", "compile all layers: --aot=memory")
    assert finding.message == (
        "train needs about 15.20 GiB of the 15.48 GiB that a program may use on each device of v3-8: so close to the "
        "limit, numbers extrapolated from few layers do not decide"
    )
    (finding,) = judge(account(int(14.9 * GIB), extrapolated=True), RUN, V3)
    assert finding.fix == "compile to the machine's code: --aot=full"
