"""Shrinking rebinds the literals behind the bindings, and everything that reads them follows. Needs only gin."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gin
import pytest

from t5x_harness.execute import sizes
from t5x_harness.execute.shrink import Shrinker
from t5x_harness.gin.config import GinConfig
from t5x_harness.gin.reader import read
from t5x_harness.spec import Mode, RunSpec

# These have the names and parameters of T5X's configurables, for code that only reads and writes bindings.
CONFIGURABLES = {
    "__main__.train": "total_steps eval_steps eval_period stats_period relative_steps random_seed use_hardware_rng "
    "train_dataset_cfg train_eval_dataset_cfg",
    "small.SaveCheckpointConfig": "period checkpoint_steps",
    "small.DatasetConfig": "batch_size task_feature_lengths seed",
    "small.Trainer": "num_microbatches",
    "small.network": "num_heads head_dim emb_dim mlp_dim num_layers vocab_size dropout_rate",
    "small.warmup_cosine": "warmup_steps decay_steps",  # a schedule that reads the train steps
    "small.constant_schedule": "warmup_steps",  # a schedule that does not
}
for _name, _parameters in CONFIGURABLES.items():
    _module, _, _kind = _name.partition(".")
    gin.register(dataclasses.make_dataclass(_kind, [(each, Any, None) for each in _parameters.split()]), module=_module)

CONFIG = """
TRAIN_STEPS = 1_020_000
BATCH_SIZE = 128
EMBED_DIM = 768
LENGTHS = {'inputs': 512, 'targets': 114}
__main__.train.total_steps = %TRAIN_STEPS
__main__.train.eval_steps = 20
__main__.train.eval_period = 1000
small.SaveCheckpointConfig.period = 5000
train/small.DatasetConfig.batch_size = %BATCH_SIZE
train/small.DatasetConfig.task_feature_lengths = %LENGTHS
infer_eval/small.DatasetConfig.batch_size = 64
infer_eval/small.DatasetConfig.task_feature_lengths = None
small.Trainer.num_microbatches = 8
network.num_heads = 12
network.head_dim = 64
network.emb_dim = %EMBED_DIM
network.mlp_dim = 2048
network.num_layers = 12
network.vocab_size = 32128
network.dropout_rate = 0.1
warmup_cosine.warmup_steps = 1000
warmup_cosine.decay_steps = %TRAIN_STEPS
constant_schedule.warmup_steps = 10_000
"""


@pytest.fixture
def parse(tmp_path: Path) -> Iterator[Any]:
    """Parses gin text over the configurables above."""
    gin.clear_config()

    def parsed(text: str) -> GinConfig:
        file = tmp_path / "config.gin"
        file.write_text(text)
        gin.parse_config_file(str(file))
        return GinConfig(Mode.TRAIN, read(RunSpec((str(file),)), t5x_parent=None))

    yield parsed
    gin.clear_config()


def shrunk(config: GinConfig, **kwargs: Any) -> dict[str, str]:
    shrinker = Shrinker(config, kwargs.pop("axes", sizes.Axes(4, 2)), **kwargs)
    shrinker.shrink()
    return {change.binding.replace("small.", ""): change.after for change in shrinker.changes}


def test_every_size_shrinks_at_the_binding_that_holds_it(parse: Any) -> None:
    assert shrunk(parse(CONFIG), first_step=1_000_000) == {
        "network.num_heads": "2",
        "network.head_dim": "8",
        "EMBED_DIM": "16",  # the width was 12 heads of 64, so it is 2 heads of 8
        "network.mlp_dim": "64",
        "network.num_layers": "1",
        "LENGTHS": "{'inputs': 64, 'targets': 16}",
        "Trainer.num_microbatches": "2",
        "BATCH_SIZE": "8",
        "infer_eval/DatasetConfig.batch_size": "8",
        "TRAIN_STEPS": "1000004",
        "warmup_cosine.warmup_steps": "980",
        "train.eval_period": "2",
        "SaveCheckpointConfig.period": "2",
        "train.eval_steps": "2",
        "train.stats_period": "1",
    }


def test_a_number_of_microbatches_that_t5x_takes_for_none_leaves_the_batch_positive(parse: Any) -> None:
    for parts in ("-2", "0", "True", "None"):
        changes = shrunk(parse(CONFIG.replace("num_microbatches = 8", f"num_microbatches = {parts}")))
        assert int(changes["BATCH_SIZE"]) > 0


def test_a_schedule_shrinks_with_the_steps_it_reads_and_no_other_does(parse: Any) -> None:
    changes = shrunk(parse(CONFIG.replace("1_020_000", "20_000")))
    assert changes["TRAIN_STEPS"] == "4"
    assert changes["warmup_cosine.warmup_steps"] == "1"
    assert "constant_schedule.warmup_steps" not in changes


def test_steps_that_were_asked_for_take_the_place_of_the_few_with_every_period(parse: Any) -> None:
    changes = shrunk(parse(CONFIG.replace("1_020_000", "20_000")), steps=200)
    periods = ("train.eval_period", "SaveCheckpointConfig.period", "warmup_cosine.warmup_steps")
    assert [changes[name] for name in ("TRAIN_STEPS", *periods)] == ["200", "100", "100", "10"]


def test_steps_that_were_asked_for_may_be_more_than_the_configs(parse: Any) -> None:
    shrinker = Shrinker(parse("train.total_steps = 10"), sizes.Axes(8, 1), first_step=7, steps=5)
    shrinker.shrink()
    assert next((c.binding, c.after, c.why) for c in shrinker.changes) == ("train.total_steps", "12", "steps")


def test_steps_beyond_a_checkpoints_are_as_many_as_were_asked_for(parse: Any) -> None:
    changes = shrunk(parse("train.total_steps = 10\ntrain.relative_steps = 8"), steps=6)
    assert changes["train.relative_steps"] == "6"
    assert "train.total_steps" not in changes


def test_a_small_config_stays_as_it_is(parse: Any) -> None:
    small = """
    train.total_steps = 4
    train.eval_steps = 2
    train.eval_period = 2
    train.stats_period = 1
    small.SaveCheckpointConfig.period = 2
    train/small.DatasetConfig.batch_size = 4
    train/small.DatasetConfig.task_feature_lengths = {'inputs': 32, 'targets': 16}
    network.num_heads = 8
    network.head_dim = 4
    network.emb_dim = 16
    network.num_layers = 1
    """
    assert shrunk(parse(small)) == {}


def test_heads_that_the_model_axis_divides_still_are(parse: Any) -> None:
    assert shrunk(parse("network.num_heads = 64"), axes=sizes.Axes(8, 16)) == {"network.num_heads": "16"}


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (
            "RANDOM_SEED = None\n__main__.train.random_seed = %RANDOM_SEED",
            [
                ("RANDOM_SEED", "None", "0", "repeatable"),
                ("train.use_hardware_rng", "the default", "True", "repeatable"),  # which T5X then uses
            ],
        ),
        (
            # T5X passes infer_eval's None on to SeqIO, whose sources may then be functions without a seed.
            """
            DATA_SEED = None
            __main__.train.random_seed = 42
            __main__.train.train_dataset_cfg = @train/small.DatasetConfig()
            __main__.train.train_eval_dataset_cfg = @train_eval/small.DatasetConfig()
            train/small.DatasetConfig.seed = %DATA_SEED
            train_eval/small.DatasetConfig.seed = 7
            infer_eval/small.DatasetConfig.seed = None
            """,
            [("DATA_SEED", "None", "0", "repeatable")],
        ),
        ("__main__.train.random_seed = 42", []),
    ],
    ids=["none", "data", "own"],
)
def test_what_t5x_would_seed_by_the_clock_gets_a_seed(parse: Any, text: str, changes: list[tuple[str, ...]]) -> None:
    shrinker = Shrinker(parse(text), sizes.Axes(8, 1))
    shrinker.fix_seed()
    assert [(c.binding, c.before, c.after, c.why) for c in shrinker.changes] == changes
