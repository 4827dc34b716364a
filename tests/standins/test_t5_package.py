"""T5X's pretraining example runs without the package ``t5``: its task has a stand-in, and C4 is generated."""

import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from local_run import LocalRun

from t5x_harness.spec import Outcome, RunSpec, Stage, StandInPolicy
from t5x_harness.workers.zygote import Zygote

GUIDE = """
include 't5x/examples/t5/t5_1_1/examples/small_c4_pretrain.gin'
import seqio
USE_CACHED_TASKS = False
seqio.SentencePieceVocabulary.sentencepiece_model_file = 'gs://t5-data/vocabs/cc_all.32000/sentencepiece.model'
seqio.SentencePieceVocabulary.extra_ids = 100
"""


@pytest.fixture
def guide(zygote: Zygote, tmp_path: Path) -> Callable[..., LocalRun]:
    """Returns a function that makes the run of the guide's example."""

    def make(gin: str = "", **options: object) -> LocalRun:
        (tmp_path / "run.gin").write_text(GUIDE + gin)
        spec = RunSpec(("run.gin",), slice="v3:1x1", runtime="embedded", cwd=str(tmp_path)).with_settings(**options)
        return LocalRun(spec, zygote=zygote, workspace=tmp_path / "run", timeout=300)

    return make


def test_the_guides_example_resolves_and_says_what_stands_for_what(guide: Callable[..., LocalRun]) -> None:
    with guide(tfds_data_dir="gs://my-bucket/tfds") as backend:
        result = backend.stage(Stage.RESOLVE)
        assert (result.outcome, result.findings) == (Outcome.PASSED, ())
        standins = backend.result().standins
    assert set(standins) == {
        "package: t5",
        "TFDS data of task c4_v220_span_corruption: c4/en:2.2.0 in gs://my-bucket/tfds",
        "vocabulary: 'gs://t5-data/vocabs/cc_all.32000/sentencepiece.model'",
    }
    assert (
        "whether the package t5 is installed where the job runs, and what its own preprocessors and metrics make of "
        "the tasks that have stand-ins"
    ) in result.not_checked


def test_a_version_that_tfds_no_longer_makes_is_answered_with_the_option(guide: Callable[..., LocalRun]) -> None:
    with guide() as backend:
        (finding,) = backend.stage(Stage.RESOLVE).findings
    assert finding.code == "SEQ31"
    assert finding.fix.endswith("data that was prepared before: --tfds_data_dir=gs://bucket/folder")


def test_a_task_without_a_stand_in_is_not_found(guide: Callable[..., LocalRun]) -> None:
    with guide("MIXTURE_OR_TASK_NAME = 'glue_v002_proportional'\n") as backend:
        (finding,) = backend.stage(Stage.RESOLVE).findings
    assert finding.code == "SEQ04"
    assert "glue_v002_proportional" in finding.message


PROGRAM = """
import sys
from t5x_harness.spec import StandInPolicy
from t5x_harness.standins import t5_package
t5_package.install(StandInPolicy({policy!r}), lambda: print("noted"))
try:
    import t5.data.preprocessors
except ModuleNotFoundError as error:
    print(error)
import t5
print(t5.__spec__.origin)
"""


def of_program(policy: StandInPolicy, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(policy=str(policy))], cwd=cwd, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def test_other_modules_of_the_package_say_how_it_is_installed(tmp_path: Path) -> None:
    assert of_program(StandInPolicy.MISSING, tmp_path) == (
        "No module named 't5.data.preprocessors': the stand-in for the package t5 only has the tasks "
        "c4_v220_span_corruption, wmt14_enfr_v003, wmt19_ende_v003, wmt_t2t_ende_v003; install it: python -m pip "
        "install babel nltk rouge-score scikit-learn, then python -m pip install --no-deps t5\nstand-in\n"
    )
    assert "No module named 't5'" in of_program(StandInPolicy.OFF, tmp_path)


def test_a_package_t5_that_is_there_is_taken(tmp_path: Path) -> None:
    (tmp_path / "t5").mkdir()
    (tmp_path / "t5/__init__.py").touch()
    printed = of_program(StandInPolicy.MISSING, tmp_path)
    assert printed == f"No module named 't5.data'\n{tmp_path / 't5/__init__.py'}\n"


def test_chunks_fill_the_lengths_of_t5() -> None:
    """Chunks have 512 tokens of inputs and 114 of targets, as in T5's paper; the highest ids are the sentinels."""
    pytest.importorskip("seqio")
    import seqio
    import tensorflow as tf

    c4 = importlib.import_module("t5x_harness.sample_tasks.c4")
    assert (c4.chunk_length(512), c4.chunk_length(64)) == (568, 70)
    pages = tf.data.Dataset.from_tensor_slices(tf.range(3, 3 + 4 * 568)).batch(100).map(lambda ids: {"targets": ids})
    vocabulary = seqio.PassThroughVocabulary(32_100)
    features = {name: seqio.Feature(vocabulary) for name in ("inputs", "targets")}
    examples = list(c4.corrupt_chunks(pages, {"inputs": 512, "targets": 114}, features))
    assert [(len(one["inputs"]), len(one["targets"])) for one in examples] == [(511, 113)] * 4
    first = [int(i) for name in ("inputs", "targets") for i in examples[0][name]]
    assert sorted(i for i in first if i < 32_000) == list(range(3, 571))
    assert len({i for i in first if i > 32_000}) == 28
