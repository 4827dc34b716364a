"""With --tpu-numerics, only operands of float32 matrix products are rounded to bfloat16, as numpy confirms.

With --exact-numerics, a run's losses equal those of T5X's own program to the bit; without it, they are close.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from local_run import LocalRun

from t5x_harness.execute import execution
from t5x_harness.execute.execution import note_numerics
from t5x_harness.execute.output import scalars_in
from t5x_harness.findings.stage_report import StageReport
from t5x_harness.runtime.choice import Runtime
from t5x_harness.runtime.cpu_isa import why_not
from t5x_harness.spec import RunSettings, RunSpec, Stage
from t5x_harness.upstream.jax import Contractions, lowered, use_tpu_numerics

Array = np.ndarray[Any, np.dtype[Any]]
NOT_CHECKED = (
    "the TPU's own numbers: --tpu-numerics rounds the operands of float32 matrix products as a TPU does; the order of "
    "sums and functions such as exp are the CPU's"
)


@pytest.fixture
def numerics() -> Iterator[Contractions]:
    """Turns on a TPU's numerics, as a run with the option does; yields the counts of products lowered before."""
    before = lowered()
    use_tpu_numerics(True)
    yield before
    use_tpu_numerics(False)


def noted(before: Contractions) -> str:
    """Returns a stage's report on its numerics."""
    report = StageReport(Stage.TRAIN)
    note_numerics(report, lowered().since(before))
    return dict(report.facts)["numerics"]


def rounded(values: Array) -> Array:
    """Returns the nearest numbers whose lower 16 bits are zero; of two equally near ones, the even one."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    even = (bits >> np.uint32(16)) & np.uint32(1)
    return ((bits + np.uint32(0x7FFF) + even) & np.uint32(0xFFFF0000)).view(np.float32)


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def same(found: Any, expected: Array) -> bool:
    """Returns whether two arrays agree to a millionth of the largest number; the order of float32 sums varies."""
    return float(np.max(np.abs(np.asarray(found, np.float64) - expected))) <= 1e-6 * float(np.max(np.abs(expected)))


def product(a: Array, b: Array) -> Array:
    """Returns the product of rounded operands, summed exactly."""
    return rounded(a).astype(np.float64) @ rounded(b).astype(np.float64)


@pytest.mark.usefixtures("numerics")
def test_a_layer_and_its_gradients_are_those_of_rounded_operands() -> None:
    """Each of the three products rounds its own operands: the input, the kernel, and the incoming gradient."""
    inputs, kernel, wanted = random(16, 32), random(32, 8, seed=1), random(16, 8, seed=2)

    def loss(kernel: Any, inputs: Any) -> Any:
        return jnp.sum((inputs @ kernel) * wanted)

    value, (of_kernel, of_inputs) = jax.jit(jax.value_and_grad(loss, (0, 1)))(kernel, inputs)
    assert float(value) == pytest.approx(np.sum(product(inputs, kernel) * wanted), rel=1e-6)
    assert same(of_kernel, product(inputs.T, wanted))
    assert same(of_inputs, product(wanted, kernel.T))
    assert not same(of_kernel, inputs.T.astype(np.float64) @ wanted)


def looped(a: Any, b: Any) -> Any:
    """Returns the product from a loop that runs until a condition holds, as decoding does."""
    return lax.while_loop(lambda state: state[1] < 1, lambda state: (state[0] @ b, state[1] + 1), (a, 0))[0]


def scanned(a: Any, b: Any) -> Any:
    return lax.scan(lambda carry, rows: (carry, rows @ b), 0, a.reshape(-1, 2, a.shape[1]))[1].reshape(a.shape)


def convolved(a: Any, b: Any) -> Any:
    return lax.conv_general_dilated(a[None], b[None], (1,), "SAME", dimension_numbers=("NHC", "HIO", "NHC"))[0]


@pytest.mark.usefixtures("numerics")
@pytest.mark.parametrize(
    "multiply",
    [
        lambda a, b: jnp.einsum("ik,kj->ij", a, b),
        scanned,
        looped,
        convolved,
        lambda a, b: lax.ragged_dot(a, b[None], jnp.array([len(a)])),
        lambda a, b: jax.vmap(lambda row: row @ b)(a),
        lambda a, b: jnp.matmul(a, b, precision="default"),
        lambda a, b: jnp.matmul(a, b, precision=lax.DotAlgorithmPreset.BF16_BF16_F32),
    ],
    ids=["einsum", "scan", "while", "convolution", "ragged", "vmap", "default", "algorithm"],
)
def test_every_kind_of_product_is_rounded(multiply: Callable[[Any, Any], Any]) -> None:
    a, b = random(8, 8), random(8, 8, seed=1)
    assert same(jax.jit(multiply)(a, b), product(a, b))


@jax.custom_vjp
def custom(a: Any, b: Any) -> Any:
    return a @ b


custom.defvjp(lambda a, b: (a @ b, (a, b)), lambda kept, back: (back @ kept[1].T, kept[0].T @ back))


@pytest.mark.usefixtures("numerics")
@pytest.mark.parametrize("multiply", [jax.checkpoint(jnp.matmul), custom, jax.checkpoint(scanned), convolved])
def test_derivatives_are_rounded_however_they_are_made(multiply: Callable[[Any, Any], Any]) -> None:
    a, b, back = random(8, 8), random(8, 8, seed=1), random(8, 8, seed=2)
    of_a, of_b = jax.jit(lambda a, b: jax.vjp(multiply, a, b)[1](back))(a, b)
    assert same(of_a, product(back, b.T))
    assert same(of_b, product(a.T, back))


@pytest.mark.parametrize(
    "precision",
    ["highest", "high", ("default", "highest"), lax.DotAlgorithmPreset.F32_F32_F32],
    ids=["highest", "high", "mixed", "algorithm"],
)
def test_a_precision_that_is_asked_for_stays(numerics: Contractions, precision: Any) -> None:
    a, b = random(8, 8), random(8, 8, seed=1)
    assert same(jnp.matmul(a, b, precision=precision), a.astype(np.float64) @ b)
    assert noted(numerics) == (
        "as on a TPU, where nothing is rounded: no matrix product of float32 has default precision; 1 left in float32, "
        "as their precision asks for it"
    )


@pytest.mark.parametrize(
    ("equation", "left", "right", "is_matrix"),
    [
        ("ik,kj->ij", (2, 8), (8, 2), True),
        ("ik,kj->ij", (2, 2), (2, 2), True),
        ("ik,kj->ij", (1, 8), (8, 16), False),
        ("ik,kj->ij", (8, 16), (16, 1), False),
        ("ik,kj->ij", (8, 1), (1, 8), False),
        ("ik,k->i", (8, 16), (16,), False),
        ("bk,bk->b", (4, 16), (4, 16), False),
        ("bik,bkj->bij", (4, 2, 2), (4, 2, 2), True),
        ("bld,dhk->blhk", (2, 16, 8), (8, 4, 3), True),
        ("bqhd,bkhd->bhqk", (2, 16, 4, 8), (2, 16, 4, 8), True),
        ("bqhd,bkhd->bhqk", (2, 1, 4, 8), (2, 16, 4, 8), False),
        ("bhqk,bkhd->bqhd", (2, 4, 1, 16), (2, 16, 4, 8), False),
        ("bld,d->bl", (2, 16, 64), (64,), False),
    ],
)
def test_a_product_by_a_vector_is_in_float32(
    numerics: Contractions, equation: str, left: tuple[int, ...], right: tuple[int, ...], is_matrix: bool
) -> None:
    """The TPU's compiler (libtpu 0.0.52, v2 to v6e) makes some products convolutions and others multiplications."""
    a, b = random(*left), random(*right, seed=1)
    found = jax.jit(lambda a, b: jnp.einsum(equation, a, b))(a, b)
    exact = [each.astype(np.float64) for each in ((rounded(a), rounded(b)) if is_matrix else (a, b))]
    assert same(found, np.einsum(equation, *exact))
    said = noted(numerics)
    assert ("operands of 1 matrix products" in said) is is_matrix
    assert ("; 1 by a vector left in float32, as a TPU has them" in said) is not is_matrix


def text(function: Callable[..., Any], *arguments: Any) -> str:
    return str(jax.jit(function).lower(*arguments).as_text())


def test_programs_without_it_are_those_of_jax_and_bfloat16_is_as_it_was() -> None:
    narrow = jnp.ones((2, 2), jnp.bfloat16)
    inputs = [(jnp.ones((2, 2)), jnp.ones((2, 2))), (narrow, narrow), (narrow, jnp.ones((2, 2)))]
    multiply = lambda a, b: lax.dot(a, b, preferred_element_type=jnp.float32)  # noqa: E731
    before = [text(multiply, *each) for each in inputs]
    use_tpu_numerics(True)
    meanwhile = [text(multiply, *each) for each in inputs]
    use_tpu_numerics(False)
    assert [text(multiply, *each) for each in inputs] == before
    assert meanwhile[1] == before[1]
    assert [each.count("reduce_precision") for each in meanwhile] == [2, 0, 1]


def test_runs_of_one_process_have_each_their_own_numbers() -> None:
    """With --in-process, programs that the other run compiled are not used."""
    multiply = jax.jit(jnp.dot)
    values, ones = np.full((2, 2), 257.0, np.float32), np.eye(2, dtype=np.float32)
    found = []
    for on in (False, True, True, False):
        use_tpu_numerics(on)
        found.append(float(multiply(values, ones)[0, 0]))
    assert found == [257.0, 256.0, 256.0, 257.0]


@pytest.mark.journey
def test_training_evaluation_and_decoding_are_all_rounded(
    backend: Callable[..., LocalRun], train_text: str, infer_eval_text: str
) -> None:
    """The stages share programs; each reports how many products of the run have been rounded so far."""
    run = backend(train_text, extra=infer_eval_text, tpu_numerics=True)
    counts = []
    for stage in (Stage.TRAIN, Stage.EVAL, Stage.INFER):
        result = run.passed(stage)
        assert NOT_CHECKED in result.not_checked
        words = dict(result.facts)["numerics"].split()
        assert words[:6] == ["as", "on", "a", "TPU:", "float32", "operands"]
        counts.append(int(words[7]))
    assert 50 < counts[0] <= counts[1] <= counts[2]
    assert "numerics" not in dict(run.stage(Stage.PLAN).facts)


REFERENCE = Path(__file__).parents[1] / "reference"
CONFIG: str = json.loads((REFERENCE / "trajectories/t5_1_1.json").read_text())["gin"]
"""The gin text of a recorded run, all of whose seeds are bound."""

Losses = dict[str, dict[int, float]]


def of_train(metrics: Losses) -> Losses:
    return {
        tag: dict(steps)
        for tag, steps in metrics.items()
        if tag.startswith("train/") and not tag.startswith("train/timing/")
    }


def by_the_harness(run: LocalRun) -> Losses:
    run.passed(Stage.TRAIN)
    return of_train(run.result().metrics)


def by_t5x(folder: Path, slice_: str) -> Losses:
    """Trains with T5X's own program on the slice's mesh, compiled with XLA's usual options."""
    program = [sys.executable, "-m", "t5x.train", "--gin_file=config.gin", f'--gin.MODEL_DIR="{folder}/model"']
    subprocess.run(
        [sys.executable, "-m", "t5x_harness", "exec", f"--slice={slice_}", "--t5x-runtime=embedded", "--", *program],
        env={**os.environ, "PYTHONPATH": str(REFERENCE)},
        cwd=folder,
        check=True,
    )
    return of_train(scalars_in(folder / "model"))


@pytest.mark.journey
def test_losses_are_those_of_t5x_to_the_bit(backend: Callable[..., LocalRun], tmp_path: Path) -> None:
    run = backend(CONFIG, full_size=True, exact_numerics=True, slice="v3:1x1")
    exact = by_the_harness(run)
    assert "numerics" not in dict(run.stage(Stage.TRAIN).facts)
    assert NOT_CHECKED not in run.stage(Stage.TRAIN).not_checked
    theirs = by_t5x(tmp_path, "v3:1x1")
    assert set(exact["train/loss"]) == set(range(1, 9))
    assert exact == theirs
    # In a separate folder, because T5X would find its work done in that of the earlier run.
    cheap = by_the_harness(backend(CONFIG, full_size=True, slice="v3:1x1", model_dir=str(tmp_path / "cheap")))
    for tag, steps in theirs.items():
        assert cheap[tag] == pytest.approx(steps, rel=1e-5), tag


@pytest.mark.parametrize(("exact", "cheap"), [(False, 1), (True, 0)])
def test_it_is_compiled_as_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, exact: bool, cheap: int) -> None:
    calls = []
    monkeypatch.setattr(execution, "compile_cheaply", lambda: calls.append("cheaply"))
    for other in ("activate", "force_cpu_devices", "install_mesh", "configure_for_short_run", "share_steps"):
        monkeypatch.setattr(execution, other, lambda *_: None)
    monkeypatch.setattr(execution, "runtime_of", lambda _: Runtime("embedded", "0", "/t5x", ""))
    spec = RunSpec(("run.gin",), settings=RunSettings(exact_numerics=exact))
    execution.open_execution({"spec": spec.to_json(), "workspace": str(tmp_path)}, lambda _: None)
    assert len(calls) == cheap


@pytest.mark.skipif(bool(why_not("avx2")), reason=why_not("avx2"))
def test_a_run_is_compiled_for_a_level_of_instructions(backend: Any, train_text: str, tmp_path: Path) -> None:
    (tmp_path / "shows.py").write_text("import os\nprint('flags:', os.environ['XLA_FLAGS'])\n")
    run = backend(f"{train_text}\nimport shows\n", cpu_isa="avx2", env={"PYTHONPATH": str(tmp_path)})
    run.stage(Stage.RESOLVE)
    (flags,) = re.findall("^flags: (.*)", (tmp_path / "run/run.log").read_text(encoding="utf-8"), re.MULTILINE)
    assert "--xla_cpu_max_isa=AVX2 --xla_cpu_enable_platform_dependent_math=false" in flags
