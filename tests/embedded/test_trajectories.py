"""The embedded runtime trains as T5X does, step by step, and a stopped training resumes as if it had never stopped."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from recorded import REFERENCE, Tolerance, changed, differences, record, same

from t5x_harness.sample_tasks import CONFIGS

ALL_STEPS = [str(step) for step in range(1, 9)]
MEASURED_PER_SUMMARY = (
    "seconds",
    "seqs",
    "seqs_per_second",
    "seqs_per_second_per_core",
    "steps_per_second",
    "target_tokens_per_second",
    "target_tokens_per_second_per_core",
)


def train_case(programs: Any, folder: Path, case: str) -> dict[str, Any]:
    """Trains a recorded case and returns its results."""
    (folder / "case.gin").write_text(record(case)["gin"])
    with programs.start(brief=case != "t5_1_1") as run:  # t5_1_1 runs as in a shell of exec
        flags = ["--gin_file=case.gin", f'--gin.MODEL_DIR="{folder}/model"']
        assert run.call("run", module="t5x.train", flags=flags, timeout=240) == 0
        observed: dict[str, Any] = run.call("observe", model_dir="model", final_step=record(case)["final_step"])
    return observed


JOURNEYS = ("t5_1_1", "t5_1_1_dropout", "t5_1_1_packed", "t5_1_0", "warmup_lr", "scalable_t5")


@pytest.mark.parametrize(
    "case",
    [
        "t5_1_1_microbatches",
        *(pytest.param(case, marks=pytest.mark.journey) for case in JOURNEYS),
    ],
)
def test_trains_as_recorded(case: str, programs: Any, tmp_path: Path) -> None:
    assert differences(record(case), train_case(programs, tmp_path, case), Tolerance()) == []


BFLOAT16 = Tolerance(scalar=2**-8, accuracy=2**-4, parameter=2**-8, state=2**-4)
"""The largest allowed difference between a run in bfloat16 and the same run in float32, on any CPU.

A bfloat16 has 8 significant bits, so one rounding is off by up to 2**-9. Where a CPU rounds (each product, or sums that
it keeps in float32) depends on its instructions, and so do the numbers of a record in bfloat16. Losses and parameters
are within twice one rounding. The optimizer's states are means of squared gradients, which have passed through
every layer on their way: the roundings of four layers forward and backward, and twice that for the square. Of the at
most 64 tokens that an accuracy counts, four may be ties. Limiting XLA's instructions (SSE4.2 to AVX-512, with and
without its fusions) gave 0.0018, 0.0016, 0.055 and two tokens.
"""


@pytest.mark.journey
def test_trains_in_bfloat16_as_recorded_but_for_its_rounding(programs: Any, tmp_path: Path) -> None:
    exact = record("t5_1_1")
    assert differences(exact, record("t5_1_1_bfloat16"), BFLOAT16) == []  # T5X itself is as far from float32
    observed = train_case(programs, tmp_path, "t5_1_1_bfloat16")
    assert differences(exact, observed, BFLOAT16) == []
    losses = observed["scalars"]["train"]["loss"]
    assert not any(same(want, losses[step], 1e-6) for step, want in exact["scalars"]["train"]["loss"].items())


@pytest.mark.journey
def test_evaluates_by_inference_as_recorded(programs: Any, tmp_path: Path) -> None:
    """This includes what the records' scalars leave out: the time that each step took, and the config."""
    observed = train_case(programs, tmp_path, "t5_1_1_infer_eval")
    assert differences(record("t5_1_1_infer_eval"), observed, Tolerance()) == []
    config = (tmp_path / "model/config.gin").read_text()
    assert f"'{tmp_path}/model'" in config
    assert re.sub(r"(?<=MODEL_DIR = )[^']*'[^']*'", "'model'", config) == (REFERENCE / "config.gin").read_text()
    measured = {
        folder: {tag: list(steps) for tag, steps in tags.items() if tag.startswith("timing/")}
        for folder, tags in observed["scalars"].items()
    }
    assert measured == {
        "inference_eval/ref_reverse": {},
        "train": {
            "timing/init_or_restore_seconds": ["0"],
            "timing/compilation_seconds": ["0"],
            "timing/train_iter_warmup": ["0"],
            "timing/checkpoint_seconds": ["4", "8"],
            "timing/evaluate_seconds": ["4", "8"],
            "timing/uptime": ALL_STEPS,
            **{f"timing/{tag}": ALL_STEPS for tag in MEASURED_PER_SUMMARY},
        },
        "training_eval/ref_reverse": {
            "timing/compilation_seconds": ["4"],
            **{f"timing/{tag}": ["4", "8"] for tag in MEASURED_PER_SUMMARY},
        },
    }


def test_a_difference_in_any_part_is_told() -> None:
    """The comparison can fail: each change to a run yields one line that names it."""
    expected = record("t5_1_1_infer_eval")
    leaf = "target/token_embedder/embedding"
    loss = expected["scalars"]["train"]["loss"]["3"]
    lines = expected["inference_eval"]["ref_reverse-000008.jsonl"]
    changes: list[tuple[dict[str, Any], str]] = [
        (changed(expected, loss * 1.001, "scalars", "train", "loss", "3"), "train/loss at step 3: "),
        (changed(expected, float("nan"), "scalars", "train", "loss", "3"), "train/loss at step 3: nan"),
        (changed(expected, {}, "scalars", "training_eval/ref_reverse"), "training_eval/ref_reverse: tags missing "),
        (changed(expected, {"8": 1.0}, "scalars", "train", "accuracy"), "train/accuracy: written at steps ['8']"),
        (changed(expected, expected["files"][1:], "files"), "files missing: ['checkpoint_0']"),
        (changed(expected, [*expected["files"], "checkpoint_5"], "files"), "more files: ['checkpoint_5']"),
        (changed(expected, [1, 2], "final_state", leaf, "shape"), f"{leaf}: shape [1, 2], not [384, 16]"),
        (changed(expected, 0.0, "final_state", leaf, "abs_sum"), f"{leaf}: abs_sum 0.0, not "),
        (changed(expected, lines[:-1], "inference_eval", "ref_reverse-000008.jsonl"), ".jsonl: 7 lines, not 8"),
        (
            changed(
                expected, [{**lines[0], "prediction": "x"}, *lines[1:]], "inference_eval", "ref_reverse-000008.jsonl"
            ),
            "line 1, prediction: 'x', not 'eteetet'",
        ),
        (changed(expected, "", "model_info"), "model-info.txt has another text"),
    ]
    for run, told in changes:
        found = differences(expected, run, Tolerance())
        assert told in "\n".join(found), (told, found)
    assert differences(expected, expected, Tolerance()) == []


GUIDE = """
from __gin__ import dynamic_registration
import __main__ as train_script
from t5x import utils

include 'pretrain_span_corruption.gin'

BATCH_SIZE = 8
DROPOUT_RATE = 0.1
train_script.train.eval_period = 2
train_script.train.eval_steps = 1
train_script.train.stats_period = 1
utils.SaveCheckpointConfig.period = 2

train/utils.DatasetConfig.seed = 42
RANDOM_SEED = 42
utils.SaveCheckpointConfig.save_dataset = True
"""


@pytest.mark.journey
def test_stopped_and_resumed_is_as_in_one_go(programs: Any, tmp_path: Path) -> None:
    """They are equal to the bit, including dropout. The third training restarts its data and so ends differently."""
    (tmp_path / "guide.gin").write_text(GUIDE)
    flags = ["--gin_file=guide.gin", f"--gin_search_paths={tmp_path},{CONFIGS}"]

    def train(model: str, steps: int, *more: str) -> None:
        model_dir = f'--gin.MODEL_DIR="{tmp_path}/{model}"'
        status, printed = programs.run("t5x.train", *flags, model_dir, f"--gin.TRAIN_STEPS={steps}", *more)
        assert status == 0, printed

    train("whole", 6)
    train("halves", 4)
    shutil.copytree(tmp_path / "halves", tmp_path / "forgetful")
    train("halves", 6)
    train("forgetful", 6, "--gin.utils.SaveCheckpointConfig.save_dataset=False")
    whole, halves, forgetful = (
        programs.call("observe", model_dir=model, final_step=6) for model in ("whole", "halves", "forgetful")
    )
    losses = [run["scalars"]["train"]["loss"] for run in (whole, halves, forgetful)]
    assert sorted(losses[0]) == ["1", "2", "3", "4", "5", "6"]
    assert losses[0] == losses[1]
    assert [step for step in losses[0] if losses[0][step] != losses[2][step]] == ["5", "6"]
    evaluations = [run["scalars"]["training_eval/sample_span_corruption"]["loss"] for run in (whole, halves, forgetful)]
    assert evaluations[0] == evaluations[1] != evaluations[2]
    for run in (whole, halves):
        run["final_state"]["state/step"].pop("dtype")  # restored with SaveCheckpointConfig.dtype, like everything
    assert whole["final_state"] == halves["final_state"]
