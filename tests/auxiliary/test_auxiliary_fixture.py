"""A train job and its auxiliary jobs are tested together, as runs of one test."""

import pytest
from train_desk import EVAL_OF_SAMPLES

pytest.importorskip("seqio")

EVAL = EVAL_OF_SAMPLES.replace("batch_size = 8", "batch_size = 16")
TEST = """
import os
import pathlib
import pytest
from t5x_harness import CONFIGS, Auxiliary, RunResult

TRAIN = CONFIGS / "finetune_classify.gin"
EVALUATION = Auxiliary("eval.gin", mixtures=["sample_classify"])
ACCURACY = "inference_eval/sample_classify/eval/accuracy"

def events(trained):
    return len(list(pathlib.Path(trained.model_dir, "inference_eval/sample_classify").glob("events*")))

@pytest.mark.auxiliary("eval.gin", ["what the call says takes the place of this"])
def test_with_the_train_job(t5x_run):
    tuning = Auxiliary(TRAIN, ["sample_classify"], final_steps=2)
    trained = t5x_run(TRAIN, bindings=["utils.SaveCheckpointConfig.keep = 2"], auxiliary=[EVALUATION, tuning])
    steps = [checkpoint.step for checkpoint in trained.checkpoints]
    assert len(steps) == 2
    runs = {(run.name, run.step): run.result for run in trained.auxiliary if run.mixture == "sample_classify"}
    assert [*runs] == [(name, step) for name in ("eval", "finetune_classify") for step in steps]
    assert {*steps} <= {*trained.metrics[ACCURACY]}
    assert "train/loss" in trained.metrics
    for step in steps:
        evaluated, tuned = runs["eval", step], runs["finetune_classify", step]
        assert evaluated.model_dir == trained.model_dir
        assert {at for values in evaluated.metrics.values() for at in values} == {step}
        assert tuned.model_dir == f"{trained.model_dir}/auxiliary/finetune_classify/sample_classify/checkpoint_{step}"
        assert (min(tuned.metrics["train/loss"]), tuned.steps) == (step + 1, step + 2)
        held = f"{trained.model_dir}/auxiliary/finetune_classify/held/{step}/checkpoint_{step}"
        assert held in tuned.operative_config
    assert not os.listdir(f"{trained.model_dir}/auxiliary/eval/held")
    assert RunResult.from_json(trained.to_json()) == trained

@pytest.mark.smoke
@pytest.mark.auxiliary("eval.gin", ["sample_classify"], skip_to_newest=True)
def test_by_the_marker_and_once_more(t5x_run, auxiliary_job):
    trained = t5x_run(TRAIN)
    (run,) = trained.auxiliary
    assert run.step == trained.steps
    before = events(trained)
    again = auxiliary_job(trained, EVALUATION)
    assert [each.name for each in again.auxiliary][:2] == ["eval", "eval-2"]
    assert len(again.auxiliary) == 1 + len(trained.checkpoints)
    assert events(trained) == before + len(trained.checkpoints)
"""


@pytest.fixture(autouse=True)
def configs(pytester: pytest.Pytester) -> None:
    """Writes an evaluation config, and adds the sample configs to the search paths."""
    from t5x_harness.sample_tasks import CONFIGS

    pytester.makefile(".gin", eval=EVAL)
    pytester.makeini(f"[pytest]\nt5x_search_paths = {CONFIGS}")


@pytest.mark.journey
@pytest.mark.usefixtures("imported")
def test_each_checkpoint_is_evaluated_and_tuned(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TEST)
    pytester.runpytest_subprocess().assert_outcomes(passed=2)


WRONG = """
import pytest
from t5x_harness import CONFIGS, Auxiliary, RunResult, RunSpec

TRAIN = CONFIGS / "finetune_classify.gin"

def trained(folder, **spec):
    spec = RunSpec((str(TRAIN),), search_paths=(str(CONFIGS),), **spec)
    return RunResult(spec, (), steps=4, model_dir=str(folder))

def test_steps(t5x_run):
    t5x_run(TRAIN, auxiliary=Auxiliary("eval.gin", ["a"], final_steps=3))

def test_no_mixture(t5x_run):
    t5x_run(TRAIN, auxiliary=Auxiliary("eval.gin", []))

def test_no_train_job(t5x_run):
    t5x_run("eval.gin", auxiliary=Auxiliary("eval.gin", ["a"]))

def test_no_checkpoint(auxiliary_job, tmp_path):
    auxiliary_job(trained(tmp_path), Auxiliary("eval.gin", ["sample_classify"]))

@pytest.mark.auxiliary("eval.gin", mixture=["a"])
def test_name(t5x_run):
    pass

@pytest.mark.auxiliary(mixtures=["a"])
def test_missing(t5x_run):
    pass

@pytest.mark.auxiliary("eval.gin", "a")
def test_text(t5x_run):
    pass

@pytest.mark.auxiliary("eval.gin", ["a"], 3)
def test_place(t5x_run):
    pass

@pytest.mark.auxiliary("eval.gin", ["a"])
def test_without_a_run():
    pass

@pytest.mark.auxiliary("eval.gin", ["a"])
def test_trains_nothing(t5x_run):
    pass
"""


def test_what_is_wrong_with_the_request_fails_the_test(pytester: pytest.Pytester) -> None:
    """The tests fail before anything is trained."""
    pytester.makepyfile(WRONG)
    done = pytester.runpytest_subprocess()
    done.assert_outcomes(failed=5, errors=5)
    done.stdout.fnmatch_lines_random(
        [
            "auxiliary jobs: AUX06: final_auxiliary_job_steps is 3, and jobs that eval run no train steps; *",
            "auxiliary jobs: AUX01: no mixture is named, so no job would ever start: *",
            "auxiliary jobs: eval.gin: binds no parameter of train, so it is not a train job's config; *",
            "auxiliary jobs: * has no finished checkpoint",
            "*.py:*: @pytest.mark.auxiliary: no argument 'mixture': did you mean mixtures?",
            "*.py:*: @pytest.mark.auxiliary: gin: not given, as in auxiliary('eval.gin', mixtures=?'my_task'?)",
            "*.py:*: @pytest.mark.auxiliary: mixtures='a': give a list, as ?'my_task'?",
            "*.py:*: @pytest.mark.auxiliary: after gin and mixtures arguments are given by name: final_steps, *",
            "test_without_a_run: @pytest.mark.auxiliary is for tests that call t5x_run, whose train job it gives jobs",
            "test_trains_nothing is marked auxiliary, and no train job ran in it: give a config of training to *",
        ]
    )
    assert "Traceback" not in done.stdout.str()


def test_a_config_cannot_have_the_marker(pytester: pytest.Pytester) -> None:
    """The items of a config are the stages of one run."""
    pytester.makeconftest(
        """
        import pytest

        def pytest_collection_modifyitems(items):
            for item in items:
                item.add_marker(pytest.mark.auxiliary("eval.gin", ["a"]))
        """
    )
    done = pytester.runpytest_subprocess("eval.gin::lint")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*lint: @pytest.mark.auxiliary is for tests that call t5x_run, whose train job it *"])


PROMOTED = """
import pytest
from t5x_harness import CONFIGS, Auxiliary

TRAIN = CONFIGS / "finetune_classify.gin"

@pytest.mark.tpu(accelerator_type="TPU_V3", accelerator_count=8, steps=2)
def test_promoted(t5x_run):
    evaluation = Auxiliary("eval.gin", ["sample_classify"], slice="v2-8", skip_to_newest=True)
    tuning = Auxiliary(TRAIN, ["sample_classify"], final_steps=3, skip_to_newest=True)
    trained = t5x_run(TRAIN, auxiliary=[evaluation, tuning])
    evaluated, tuned = (run.result for run in trained.auxiliary)
    assert trained.model_dir.startswith("gs://")
    assert evaluated.model_dir == trained.model_dir
    assert evaluated.metrics.keys() == {"inference_eval/sample_classify/eval/accuracy"}
    assert trained.steps in trained.metrics["inference_eval/sample_classify/eval/accuracy"]
    assert tuned.steps == trained.steps + 3
    assert tuned.model_dir.startswith(f"{trained.model_dir}/auxiliary/finetune_classify/sample_classify/checkpoint_")
    assert (evaluated.standins, tuned.standins) == ((), ())
    machines = [dict(result.stages[-n].facts)["machine"] for result, n in ((trained, 3), (evaluated, 1), (tuned, 3))]
    assert machines == [f"cloud-tpu, 8 TPU_{kind} cores" for kind in ("V3", "V2", "V3")]
"""


@pytest.mark.journey
@pytest.mark.usefixtures("imported")
def test_in_a_promoted_test_they_are_jobs_too(pytester: pytest.Pytester) -> None:
    pytest.importorskip("google.cloud.aiplatform_v1")
    pytester.makepyfile(PROMOTED)
    done = pytester.runpytest_subprocess("-m", "tpu", "--t5x-vertex=emulated", "--t5x-runtime=embedded")
    done.assert_outcomes(passed=1)
