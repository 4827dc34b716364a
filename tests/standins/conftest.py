"""Runs of configs whose vocabulary, checkpoint and data no test can reach, forked from one warmed-up process."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from local_run import LocalRun

from t5x_harness.spec import RunSpec
from t5x_harness.workers.zygote import Zygote

TASKS = """
import seqio
import tensorflow as tf
from t5x_harness.sample_tasks import metrics

VOCABULARY = seqio.SentencePieceVocabulary("gs://t5-data/vocabs/cc_all.32000.100extra/sentencepiece.model")


@seqio.map_over_dataset
def translate(example):
    return {"inputs": tf.strings.join(["translate German to English: ", example["de"]]), "targets": example["en"]}


seqio.TaskRegistry.add(
    "translate",
    source=seqio.TfdsDataSource("wmt_t2t_translate/de-en:1.0.0", tfds_data_dir="gs://my-bucket/tfds"),
    preprocessors=[translate, seqio.preprocessors.tokenize, seqio.preprocessors.append_eos],
    output_features={name: seqio.Feature(VOCABULARY) for name in ("inputs", "targets")},
    metric_fns=[metrics.accuracy],
)
"""

CONFIG = """
from __gin__ import dynamic_registration
import __main__ as train_script
import seqio
import tasks
from t5x import utils
from t5x.examples.t5 import network
include 't5x/examples/t5/t5_1_1/tiny.gin'
include 't5x/configs/runs/finetune.gin'
MIXTURE_OR_TASK_NAME = 'translate'
TASK_FEATURE_LENGTHS = {'inputs': 16, 'targets': 32}
TRAIN_STEPS = 1_000_500
BATCH_SIZE = 128
USE_CACHED_TASKS = False
DROPOUT_RATE = 0.1
LOSS_NORMALIZING_FACTOR = 233_472
VOCABULARY = @seqio.SentencePieceVocabulary()
seqio.SentencePieceVocabulary.sentencepiece_model_file = \
    'gs://t5-data/vocabs/cc_all.32000.100extra/sentencepiece.model'
network.T5Config.vocab_size = 32128
INITIAL_CHECKPOINT_PATH = 'gs://t5-data/pretrained_models/t5x/t5_1_1_tiny/checkpoint_1000000'
"""


@pytest.fixture
def run(zygote: Zygote, tmp_path: Path) -> Iterator[Callable[..., LocalRun]]:
    """Makes a run of the config above. ``tasks`` replaces a part of the tasks' module; ``gin`` comes at the end."""
    opened = []

    def make(*, gin: str = "", tasks: tuple[str, str] = ("", ""), **options: Any) -> LocalRun:
        (tmp_path / "tasks.py").write_text(TASKS.replace(*tasks), encoding="utf-8")
        (tmp_path / "run.gin").write_text(CONFIG + gin, encoding="utf-8")
        spec = RunSpec(
            ("run.gin",), slice="v3:1x1", runtime="embedded", python_path=(str(tmp_path),), cwd=str(tmp_path)
        )
        spec = spec.with_settings(**options)
        opened.append(LocalRun(spec, zygote=zygote, workspace=tmp_path / "run", timeout=300))
        return opened[-1]

    yield make
    for backend in opened:
        backend.close()
