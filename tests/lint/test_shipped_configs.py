"""T5X's own configs: the right ones are runs, and none of them is faulted without cause.

The configs of a real T5X are linted if one is installed, or if ``T5X_HARNESS_TEST_T5X`` names the folder that holds its
package ``t5x``.
"""

import os
from pathlib import Path

import pytest
from linting import T5X, classify, lint

from t5x_harness.gin.reading import ConfigReader, program_of
from t5x_harness.lint.classify import FileKind
from t5x_harness.runtime.choice import RuntimeChoiceError, find_runtime
from t5x_harness.spec import Mode, RunSpec

SHIPPED = sorted(str(path.relative_to(T5X)) for path in T5X.glob("t5x/**/*.gin"))
EXAMPLES = "t5x/examples/t5/t5_1_1/examples"
RUNS = {
    f"{EXAMPLES}/{name}.gin": Mode.TRAIN
    for name in (
        "base_c4_pretrain base_wmt14enfr_finetune base_wmt14enfr_train base_wmt19_ende_train base_wmt_finetune "
        "base_wmt_from_scratch base_wmt_from_scratch_adamw base_wmt_from_scratch_lion small_c4_pretrain "
        "small_wmt_finetune test_train_eval_t5_tiny test_train_t5_tiny"
    ).split()
} | {
    f"{EXAMPLES}/base_wmt_infer.gin": Mode.INFER,
    "t5x/examples/decoder_only/examples/base_wmt_from_scratch.gin": Mode.TRAIN,
    "t5x/examples/scalable_t5/t5_1_1/examples/wmt19_ende_from_scratch.gin": Mode.TRAIN,
}
INCOMPLETE = {
    "t5x/examples/scalable_t5/umt5/runs/pretraining_common.gin",
    *(f"t5x/examples/scalable_t5/umt5/pretrain_{size}.gin" for size in ("small", "base", "large", "xl", "xxl")),
}
"""Pretraining configs of umT5, which include a file that was never published, even in T5X itself."""


@pytest.fixture(scope="module")
def python_path(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """A stand-in for the package t5, whose mixtures the examples import."""
    data = tmp_path_factory.mktemp("path") / "t5" / "data"
    data.mkdir(parents=True)
    for file in (data.parent / "__init__.py", data / "__init__.py", data / "mixtures.py"):
        file.touch()
    return (str(data.parents[1]),)


def _spec(name: str, python_path: tuple[str, ...], tmp_path: Path, *bindings: str) -> RunSpec:
    return RunSpec((name,), bindings, python_path=python_path, cwd=str(tmp_path))


@pytest.mark.parametrize("name", SHIPPED)
def test_run_configs_are_told_from_fragments(name: str, python_path: tuple[str, ...], tmp_path: Path) -> None:
    found = classify(_spec(name, python_path, tmp_path))
    assert found.kind is (FileKind.RUN_CONFIG if name in RUNS or name in INCOMPLETE else FileKind.FRAGMENT), (
        found.reason
    )
    assert name not in RUNS or found.mode is RUNS[name]


def test_what_a_reader_remembers_of_other_configs_changes_none(python_path: tuple[str, ...], tmp_path: Path) -> None:
    # Files whose names their own imports explain, only files read before, or nothing, in two orders.
    head = "from __gin__ import dynamic_registration\n"
    for name, text in {
        "dynamic.gin": f"{head}from t5x import utils\nutils.DatasetConfig.pack = %A\n",
        "lacking.gin": f"{head}utils.DatasetConfig.pack = @utils.DatasetConfig()\n",
        "bare.gin": "utils.DatasetConfig:\n  seed = @DatasetConfig\n",
        "a.gin": "include 'dynamic.gin'\ninclude 'bare.gin'\ninclude 'lacking.gin'\n",
        "b.gin": "A = True\ninclude 'bare.gin'\ninclude 'lacking.gin'\ninclude 'dynamic.gin'\ninclude 'bare.gin'\n",
    }.items():
        (tmp_path / name).write_text(text)
    reader = ConfigReader(T5X)
    for name in (*SHIPPED, "a.gin", "b.gin", "a.gin", "dynamic.gin"):
        spec = _spec(name, python_path, tmp_path)
        assert reader.read(spec) == program_of(spec, t5x_parent=T5X), name


def test_the_list_of_runs_is_of_files_that_are_there() -> None:
    assert set(SHIPPED) >= RUNS.keys() | INCOMPLETE


@pytest.mark.stack  # two of them bind optax optimizers
@pytest.mark.parametrize("name", sorted(RUNS))
def test_no_shipped_run_has_an_error(name: str, python_path: tuple[str, ...], tmp_path: Path) -> None:
    result = lint(_spec(name, python_path, tmp_path))
    assert result.errors == ()
    assert result.exercised > 80


@pytest.mark.parametrize("name", sorted(INCOMPLETE))
def test_a_file_that_t5x_never_published_is_named(name: str, python_path: tuple[str, ...], tmp_path: Path) -> None:
    [error] = lint(_spec(name, python_path, tmp_path)).errors
    assert error.code == "GIN17"
    assert "t5x/configs/runs/pretrain_deterministic.gin" in error.message


def test_the_import_that_umt5s_fine_tuning_lacks_is_named(python_path: tuple[str, ...], tmp_path: Path) -> None:
    """With T5X itself, Gin also stops there."""
    bindings = ("MODEL_DIR = 'm'", "MIXTURE_OR_TASK_NAME = 'x'", "MIXTURE_OR_TASK_MODULE = None")
    spec = _spec("t5x/examples/scalable_t5/umt5/tydiqa_base.gin", python_path, tmp_path, *bindings)
    [error] = (found for found in lint(spec).errors if found.code == "GIN29")
    assert error.fix == ("add `from t5x import partitioning` to t5x/examples/scalable_t5/umt5/tydiqa_base.gin")


@pytest.mark.parametrize(
    ("name", "mode", "bindings"),
    [
        (f"{EXAMPLES}/base_wmt_infer.gin", Mode.INFER, ()),
        ("t5x/configs/runs/eval.gin", Mode.EVAL, ("MIXTURE_OR_TASK_NAME = 'x'", "DROPOUT_RATE = 0.0")),
    ],
)
def test_a_fragment_with_what_it_leaves_open_is_a_run(
    name: str, mode: Mode, bindings: tuple[str, ...], python_path: tuple[str, ...], tmp_path: Path
) -> None:
    bindings = ("CHECKPOINT_PATH = '/m/checkpoint_10'", *bindings)
    spec = RunSpec(("t5x/examples/t5/t5_1_1/base.gin", name), bindings, python_path=python_path, cwd=str(tmp_path))
    found = classify(spec)
    assert (found.kind, found.mode) == (FileKind.RUN_CONFIG, mode), found.reason
    assert lint(spec).errors == ()


def _real_t5x() -> Path | None:
    if folder := os.environ.get("T5X_HARNESS_TEST_T5X"):
        return Path(folder).absolute()
    try:
        return Path(find_runtime("installed").location).parent
    except RuntimeChoiceError:
        return None


REAL = _real_t5x()

# The mistakes in T5X's own files at commit cc342d4: seen in its sources, and most of them also when it parses the file.
FAULTS = {
    **{name: {"GIN17"} for name in INCOMPLETE},
    **{
        # It restores the single checkpoint that it names in mode 'latest', because `mode = 'specific'` is commented
        # out.
        f"t5x/contrib/gpu/t5/t5_1_1/examples/{size}_{task}_finetune_adam.gin": {"CKP05"}
        for size in ("small", "large", "xl")
        for task in ("mnli2", "squad1")
    },
}


@pytest.mark.skipif(REAL is None, reason="no T5X is installed, and T5X_HARNESS_TEST_T5X names none")
def test_no_run_of_a_real_t5x_has_an_error_that_t5x_does_not_have(python_path: tuple[str, ...], tmp_path: Path) -> None:
    assert REAL is not None
    linted = 0
    for path in sorted(REAL.glob("t5x/**/*.gin")):
        name = str(path.relative_to(REAL))
        spec = _spec(name, python_path, tmp_path)
        if classify(spec, t5x_parent=REAL).kind is FileKind.RUN_CONFIG:
            linted += 1
            errors = {f.code for f in lint(spec, t5x_parent=REAL).errors}
            assert errors == FAULTS.get(name, set()), name
    assert linted >= len(RUNS)
