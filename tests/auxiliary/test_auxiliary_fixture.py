"""A train job and its auxiliary jobs are tested together, as runs of one test."""

from __future__ import annotations

import pytest

pytest.importorskip("seqio")

EVAL = """
from __gin__ import dynamic_registration
import __main__ as eval_script
from t5x import utils
import t5x_harness.sample_tasks.tasks

include 'models/tiny_bytes.gin'
include 't5x/configs/runs/eval.gin'

TASK_FEATURE_LENGTHS = {'inputs': 80, 'targets': 12}
DROPOUT_RATE = 0.0

utils.DatasetConfig:
  split = 'validation'
  batch_size = 16
"""
TEST = """
from t5x_harness import CONFIGS

def test_continuous(t5x_run, auxiliary_job):
    trained = t5x_run(CONFIGS / "finetune_classify.gin", bindings=["utils.SaveCheckpointConfig.keep = 2"])
    steps = [checkpoint.step for checkpoint in trained.checkpoints]
    assert len(steps) == 2
    evaluated = auxiliary_job(trained, "eval.gin", mixtures=["sample_classify"])
    metric = next(name for name in evaluated.metrics if name.startswith("inference_eval/sample_classify/"))
    assert {*steps} <= {*evaluated.metrics[metric]}
    assert "train/loss" in evaluated.metrics
    assert [record.state for record in evaluated.status.records] == ["succeeded", "succeeded"]
    tuned = auxiliary_job(trained, CONFIGS / "finetune_classify.gin", mixtures=["sample_classify"], final_steps=2)
    assert {key: result.steps for key, result in tuned.results.items()} == {
        (step, "sample_classify"): step + 2 for step in steps
    }
    import pathlib
    print("found", len(list(pathlib.Path(trained.model_dir, "inference_eval/sample_classify").glob("events*"))))
"""


@pytest.mark.journey
@pytest.mark.usefixtures("imported")
def test_each_checkpoint_is_evaluated_and_tuned(pytester: pytest.Pytester) -> None:
    pytester.makefile(".gin", eval=EVAL)
    pytester.makepyfile(TEST)
    pytester.makeini("[pytest]\nt5x_search_paths = " + _configs())
    done = pytester.runpytest_subprocess("-s")
    done.assert_outcomes(passed=1)


def test_what_is_wrong_with_the_request_fails_the_test(pytester: pytest.Pytester) -> None:
    pytester.makefile(".gin", eval=EVAL)
    pytester.makepyfile(
        """
        import dataclasses
        from t5x_harness import CONFIGS, RunResult, RunSpec

        def trained(folder, **spec):
            spec = RunSpec((str(CONFIGS / "finetune_classify.gin"),), search_paths=(str(CONFIGS),), **spec)
            return RunResult(spec, (), steps=4, model_dir=str(folder))

        def test_steps(auxiliary_job, tmp_path):
            auxiliary_job(trained(tmp_path), "eval.gin", mixtures=["a"], final_steps=3)

        def test_no_checkpoint(auxiliary_job, tmp_path):
            auxiliary_job(trained(tmp_path), "eval.gin", mixtures=["sample_classify"])

        def test_elsewhere(auxiliary_job):
            auxiliary_job(trained("gs://bucket/run"), "eval.gin", mixtures=["a"])
        """
    )
    done = pytester.runpytest_subprocess()
    done.assert_outcomes(failed=3)
    done.stdout.fnmatch_lines_random(
        [
            "auxiliary_job: AUX06: final_auxiliary_job_steps is 3, and jobs that eval do no train steps; *",
            "auxiliary_job: * has no finished checkpoint",
            "auxiliary_job: gs://bucket/run is a job's, and this runs here: *",
        ]
    )
    assert "Traceback" not in done.stdout.str()


def _configs() -> str:
    from t5x_harness.sample_tasks import CONFIGS

    return str(CONFIGS)
