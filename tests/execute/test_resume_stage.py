"""A training that is killed and restarted: bugs that only a restart shows are found, each with its cause."""

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from local_run import LocalRun

from t5x_harness.findings.stage_report import StageReport
from t5x_harness.resume.campaign import FaultOutcome, summarize
from t5x_harness.spec import Fault, Finding, Outcome, Severity, Stage, StageResult

Backend = Callable[..., LocalRun]
Resumed = Callable[..., StageResult]

SAVED = "utils.SaveCheckpointConfig.save_dataset = True\n"
OWN_TRAINER = """
import mine
train_script.train.trainer_cls = @mine.Trainer
mine.Trainer.num_microbatches = None
mine.Trainer.learning_rate_fn = @utils.create_learning_rate_scheduler()
"""


@pytest.fixture
def resumed(backend: Backend, train_text: str, tmp_path: Path) -> Resumed:
    """Trains a config, kills and restarts it, and returns the result of the comparison."""

    def run(extra: str = SAVED, module: str = "", preempt: str | None = None, **settings: int) -> StageResult:
        shutil.rmtree(tmp_path / "run", ignore_errors=True)  # of an earlier call
        if module:
            (tmp_path / "mine.py").write_text(module)
        text = train_text.replace("eval_period = 2", "eval_period = 4")
        made = backend(text + extra, resume=True, preempt=preempt, **settings)
        made.passed(Stage.RESOLVE, Stage.PLAN, Stage.TRAIN)
        return made.stage(Stage.RESUME)

    return run


def only(result: StageResult) -> Finding:
    (finding,) = result.errors
    return finding


def test_a_training_goes_on_to_the_bit(resumed: Resumed) -> None:
    result = resumed()
    assert result.outcome is Outcome.PASSED, (result.findings, result.log_tail)
    assert (result.findings, result.not_checked) == ((), ())
    facts = dict(result.facts)
    assert facts["ended"] == "by kill, before the batch of step 4 was taken, with checkpoint_0, checkpoint_2"
    assert facts["went on from"] == "checkpoint_2; 1 step trained twice"
    assert facts["examples"] == "trained twice: 0, never: 0"
    assert facts["compared"] == "the states of 2 steps after the restart, equal to the bit"
    assert "equal except for times" in facts["metrics"]
    assert result.exercised == 2


@pytest.mark.journey
def test_without_the_position_of_the_data_it_is_said_what_cannot_repeat(resumed: Resumed) -> None:
    result = resumed("")
    assert result.outcome is Outcome.PASSED, (result.findings, result.log_tail)
    (note,) = result.findings
    assert (note.code, note.severity) == ("RES03", Severity.NOTE)
    said = r"after a restart, the data begins anew: of 32 examples, ([1-9]\d*) are trained twice and \1 never"
    assert re.fullmatch(said, note.message), note.message
    assert result.not_checked == ("the steps after a restart: they have other batches than without one",)


@pytest.mark.journey
def test_however_and_whenever_it_ends_it_goes_on(resumed: Resumed, monkeypatch: pytest.MonkeyPatch) -> None:
    """One training is compared with several that are ended, each in another way or at another moment."""
    taken = "before the batch of step 4 was taken, with checkpoint_0, checkpoint_2"
    ended = {
        "during=commit,how=kill": (
            "RES03, lost 2 steps",
            "by kill, when checkpoint_2 was about to become complete, with checkpoint_0",
        ),
        "during=step,how=term,at_step=3": ("equal, lost 1 step", f"by term, {taken}"),
        "during=step,how=stop": ("equal, lost 1 step", f"by stop, {taken}"),
        "during=step,how=gil,grace=1": ("equal, lost 1 step", f"by gil, {taken}"),
        "during=restore,how=kill": (
            "equal, lost 1 step",
            "by kill, while a checkpoint was read, with checkpoint_0, checkpoint_2",
        ),
        "during=compile,how=kill": (
            "equal, lost 1 step",
            "by kill, while the train step was compiled, with checkpoint_0, checkpoint_2",
        ),
    }
    faults = [Fault.from_text(text) for text in ended]
    compared: list[FaultOutcome] = []

    def summarized(outcomes: Sequence[FaultOutcome], seed: int, report: StageReport) -> None:
        compared.extend(outcomes)
        summarize(outcomes, seed, report)

    monkeypatch.setattr("t5x_harness.resume.campaign.draw", lambda seed, times, training: faults)
    monkeypatch.setattr("t5x_harness.resume.stage.summarize", summarized)
    result = resumed(campaign=0, times=len(faults))
    assert result.outcome is Outcome.PASSED, (result.findings, result.log_tail)
    said = [text.partition(": ") for name, text in result.facts if name.startswith("fault ")]
    ways = [dict(outcome.report.facts)["ended"] for outcome in compared]
    assert {fault: (text, way) for (fault, _, text), way in zip(said, ways, strict=True)} == ended


@pytest.mark.journey
def test_what_opens_the_data_sees_the_checkpoints_of_the_killed_process(resumed: Resumed, tmp_path: Path) -> None:
    bound = "train_script.train.get_dataset_fn = @mine.get_dataset\nmine.get_dataset.model_dir = %MODEL_DIR\n"
    result = resumed(f"{SAVED}import mine\n{bound}", READS_MODEL_DIR)
    assert result.outcome is Outcome.PASSED, (result.findings, result.log_tail)
    (log,) = tmp_path.rglob("resumed-run/run.log")
    seen = re.findall("before the data: (.*)", log.read_text(encoding="utf-8"))
    assert seen == ["[]", "['checkpoint_0', 'checkpoint_2']"]


@pytest.mark.journey
def test_a_half_written_checkpoint_is_not_chosen(resumed: Resumed) -> None:
    result = resumed(preempt="save")
    assert result.outcome is Outcome.PASSED, (result.findings, result.log_tail)
    facts = dict(result.facts)
    assert facts["ended"] == "by kill, while checkpoint_2 was written, with checkpoint_0"
    assert facts["left unfinished"] == "checkpoint_2.orbax-checkpoint-tmp"
    assert facts["went on from"] == "step 0, the first one; 2 steps trained twice"
    (note,) = result.findings
    assert note.message.startswith("T5X itself loses a batch here: it saves checkpoint_0 when it has already taken the")


@pytest.mark.journey
def test_an_evaluation_that_was_killed_is_lost(resumed: Resumed) -> None:
    result = resumed(f"{SAVED}train_script.train.eval_period = 2\n", preempt="eval")
    assert result.outcome is Outcome.PASSED, (result.findings, result.log_tail)
    lost = "the evaluation at step 2: T5X saves before it evaluates, and does not repeat it"
    assert dict(result.facts)["lost"] == lost


@pytest.mark.journey
def test_an_inference_goes_on_after_its_last_chunk(backend: Backend, infer_text: str) -> None:
    made = backend(infer_text, resume=True)
    made.passed(Stage.RESOLVE, Stage.PLAN, Stage.INFER)
    result = made.passed(Stage.RESUME)
    assert (result.findings, result.not_checked, result.exercised) == ((), (), 1)
    assert dict(result.facts) == {
        "ended": "by kill, when the model had run 1 times",
        "went on from": "chunk 1 of 2; 0 made twice",
        "results": "16 lines of 2 files and 0 scalars, equal",
    }


NUMBERED = """
import json

number = 0


def write(path, inferences, task_ds, mode, vocabulary=None):
    global number
    with open(path, "w") as file:
        for _ in task_ds:
            number += 1
            file.write(json.dumps({"inputs": {}, "number": number}) + "\\n")
"""


@pytest.mark.journey
def test_an_inference_that_counts_in_its_process_is_named(backend: Backend, infer_text: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(NUMBERED)
    made = backend(f"{infer_text}import mine\ninfer_script.infer.write_fn = @mine.write\n", preempt="how=term")
    made.passed(Stage.RESOLVE, Stage.PLAN, Stage.INFER)
    error = only(made.stage(Stage.RESUME))
    assert error.code == "RES09"
    assert "line 9 of ref_reverse-predict.jsonl-00000-of-00001 is another one" in error.message


@pytest.mark.journey
def test_an_evaluation_is_made_again(backend: Backend, eval_text: str) -> None:
    made = backend(f"{eval_text}CHECKPOINT_PATH = 'gs://nowhere/model/checkpoint_1234'\n", resume=True)
    made.passed(Stage.RESOLVE, Stage.PLAN, Stage.EVAL)
    facts = dict(made.passed(Stage.RESUME).facts)
    assert facts["went on from"] == "pass of the model 0 of 2; 0 made twice; T5X keeps no part of an evaluation"
    assert facts["results"] == "10 lines of 3 files and 2 scalars, equal"


@pytest.mark.journey
def test_the_inference_with_a_trained_checkpoint_goes_on(resumed: Resumed) -> None:
    result = resumed(preempt="infer")
    assert result.outcome is Outcome.PASSED, (result.findings, result.log_tail)
    assert dict(result.facts)["went on from"] == "chunk 1 of 2; 0 made twice"


@pytest.mark.journey
def test_a_trainer_that_saves_on_sigterm_loses_nothing(resumed: Resumed) -> None:
    trainer = "from t5x_harness import preemption\ntrain_script.train.trainer_cls = @preemption.Trainer\n"
    result = resumed(SAVED + trainer, preempt="at_step=2,how=term")
    assert result.outcome is Outcome.PASSED, (result.findings, result.log_tail)
    facts = dict(result.facts)
    assert facts["ended"].startswith(
        "by term, before the batch of step 3 was taken, with checkpoint_0, checkpoint_2, c"
    )
    assert "it ended by itself (PreemptionError: received SIGTERM: the training ends at step 3)" in facts["ended"]
    assert facts["went on from"] == "checkpoint_3; 0 steps trained twice"
    assert facts["examples"] == "trained twice: 0, never: 0"
    assert (result.findings, result.not_checked) == ((), ())


@pytest.mark.journey
def test_a_fault_that_cannot_come(resumed: Resumed) -> None:
    late = only(resumed(preempt="at_step=400"))
    assert (late.code, late.fix) == ("RES08", "order it for a step from 0 to 3")
    assert late.message == "during=step,how=kill,at_step=400 cannot come: training ends at step 4, and began at step 0"


LOST_POSITION = """
import clu.data
import tensorflow as tf

tf.train.Checkpoint.read = lambda self, path: type("Read", (), {"assert_consumed": lambda self: None})()
clu.data.dataset_iterator.TfDatasetIterator.load = lambda self, path: None
"""
CLOCK = """
import time

import numpy as np
import seqio
import ref_tasks
import tensorflow as tf


def source(split, shuffle_files=False, seed=None):
    order = np.random.default_rng(time.time_ns()).permutation(200)
    texts = [str(number) for number in order]
    return tf.data.Dataset.from_tensor_slices({"inputs": texts, "targets": texts})


seqio.TaskRegistry.add(
    "clock",
    source=seqio.FunctionDataSource(source, splits=("train", "validation")),
    preprocessors=[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos],
    output_features=ref_tasks._PAIR,
    metric_fns=[],
)
"""
READS_MODEL_DIR = """
import os

import gin
from t5x import utils


@gin.configurable
def get_dataset(cfg, shard_id, num_shards, feature_converter_cls, model_dir=gin.REQUIRED, **options):
    print("before the data:", sorted(name for name in os.listdir(model_dir) if name.startswith("checkpoint_")))
    return utils.get_dataset(cfg, shard_id, num_shards, feature_converter_cls, **options)
"""
STEP_OFF_BY_ONE = """
import jax.numpy as jnp
from t5x import trainer


class Trainer(trainer.Trainer):
    def __init__(self, model, train_state, **rest):
        if int(train_state.step):
            train_state = train_state.replace_step(jnp.asarray(int(train_state.step) + 1))
        super().__init__(model=model, train_state=train_state, **rest)
"""
LOST_SLOTS = """
import jax
import jax.numpy as jnp
from t5x import trainer


class Trainer(trainer.Trainer):
    def __init__(self, model, train_state, **rest):
        if int(train_state.step):
            state = train_state.state_dict()
            state["state"]["param_states"] = jax.tree.map(jnp.zeros_like, state["state"]["param_states"])
            train_state = train_state.restore_state(state)
        super().__init__(model=model, train_state=train_state, **rest)
"""
STEPS_OF_THE_PROCESS = """
import jax
from t5x import trainer


class Trainer(trainer.Trainer):
    def __init__(self, model, train_state, **rest):
        self.first = int(train_state.step)
        super().__init__(model=model, train_state=train_state, **rest)

    def _get_step_rng(self, step):
        return super()._get_step_rng(step - self.first)
"""
COUNTED_TWICE = """
import json
import os

from t5x import trainer


class Trainer(trainer.Trainer):
    def __init__(self, summary_dir, **rest):
        super().__init__(summary_dir=summary_dir, **rest)
        self.file = os.path.join(summary_dir, "tokens.json")
        self.steps = json.load(open(self.file)) if os.path.exists(self.file) else 0

    def train(self, batch_iter, num_steps, start_step=None):
        summary = super().train(batch_iter, num_steps, start_step=start_step)
        self.steps += num_steps
        json.dump(self.steps, open(self.file, "w"))
        self.train_metrics_manager.write_scalar("steps_in_all", self.steps, int(self.train_state.step))
        return summary
"""

TIDIES_UP = """
import shutil
from pathlib import Path

import gin
from t5x import checkpoints, utils


@gin.configurable
def get_dataset(*args, directory, **kwargs):
    {does}
    return utils.get_dataset(*args, **kwargs)
"""
FINISHES = """
    for folder in Path(directory).glob("checkpoint_*.orbax-checkpoint-tmp*"):
        folder.rename(folder.with_name(folder.name.partition(".")[0]))
"""
KEEPS_OTHERS = """
    if steps := checkpoints.all_steps(directory):
        shutil.rmtree(Path(directory, f"checkpoint_{max(steps)}"))
"""
OWN_DATASET = (
    "import mine\ntrain_script.train.get_dataset_fn = @mine.get_dataset\nmine.get_dataset.directory = %MODEL_DIR\n"
)


@pytest.mark.journey
@pytest.mark.parametrize(
    ("does", "preempt", "code", "says"),
    [
        (FINISHES, "commit", "RES01", "training went on from step 2, and checkpoint_0 was complete"),
        (FINISHES, "save", "CKP27", "checkpoint_2"),
        (KEEPS_OTHERS, None, "RES01", "training went on from step 0, and checkpoint_2 was complete"),
    ],
    ids=["temporary folder", "half-written folder", "keep"],
)
def test_a_bug_of_folders_is_named(resumed: Resumed, does: str, preempt: str | None, code: str, says: str) -> None:
    error = only(resumed(SAVED + OWN_DATASET, TIDIES_UP.replace("    {does}", does), preempt))
    assert error.code == code, (error.message, error.fix)
    assert says in error.message


@pytest.mark.journey
@pytest.mark.parametrize(
    ("extra", "module", "code", "says"),
    [
        (SAVED + "import mine\n", LOST_POSITION, "RES03", "the batch of step 2 is not the one that an uninterrupted"),
        (SAVED + OWN_TRAINER, STEP_OFF_BY_ONE, "RES01", "training went on from step 3, and checkpoint_2 was complete"),
        (SAVED + OWN_TRAINER, LOST_SLOTS, "RES02", "optimizer slots, zeros now: state/param_states/"),
        (
            f"{SAVED}{OWN_TRAINER}DROPOUT_RATE = 0.1\n",
            STEPS_OF_THE_PROCESS,
            "RES04",
            "from the same state and the same batches, the restarted training reached another state at step 3",
        ),
        (SAVED + OWN_TRAINER, COUNTED_TWICE, "RES05", "train/steps_in_all at step 3 is 3, and 4 after a restart"),
        (
            f"{SAVED}train_script.train.relative_steps = 4\n",
            "",
            "RES07",
            "training ended at step 6 after a restart, and at step 4 without one",
        ),
    ],
    ids=["position", "step", "slots", "generator", "metrics", "relative steps"],
)
def test_a_bug_of_restarts_is_named(resumed: Resumed, extra: str, module: str, code: str, says: str) -> None:
    error = only(resumed(extra, module))
    assert error.code == code, (error.message, error.fix)
    assert says in error.message


@pytest.mark.journey
def test_a_campaign_finds_a_bug_with_a_fault_that_shows_it_again(resumed: Resumed) -> None:
    found = resumed(SAVED + OWN_TRAINER, LOST_SLOTS, campaign=3, times=1)
    assert found.outcome is Outcome.FAILED
    error = only(found)
    assert error.code == "RES02"
    assert error.fix is not None
    _, _, fault = error.fix.partition("this fault again: --preempt ")
    assert dict(found.facts)["fault 1"] == f"{fault}: RES02, lost 2 steps"
    again = only(resumed(SAVED + OWN_TRAINER, LOST_SLOTS, preempt=fault))
    assert again.message == error.message


@pytest.mark.journey
def test_data_that_takes_its_order_from_the_clock_is_named(resumed: Resumed) -> None:
    result = resumed(f"import mine\nMIXTURE_OR_TASK_NAME = 'clock'\n{SAVED}", CLOCK)
    (warning,) = [finding for finding in result.findings if finding.severity is Severity.WARNING]
    assert warning.code == "RES03"
    assert "the data does not repeat: with the same seed, the batch of step 0 was another one" in warning.message
