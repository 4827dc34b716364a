"""precompile: a train step's programs, for devices that need not be there."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded import record
from t5x import partitioning, precompile, utils


def test_the_train_step_is_compiled_and_its_programs_are_written(programs: Any, tmp_path: Path) -> None:
    model = record("t5_1_1")["gin"].partition("TRAIN_STEPS")[0].replace("pretrain.gin", "precompile.gin")
    tiny = "network.T5Config.num_encoder_layers = 1\nnetwork.T5Config.num_decoder_layers = 1\n"
    settings = "BATCH_SIZE = 4\nUSE_CACHED_TASKS = False\npartitioning.PjitPartitioner.backend = 'cpu'\n"
    config = model.replace("USE_HARDWARE_RNG = False\n", "")
    (tmp_path / "case.gin").write_text(config + tiny + settings)
    folder = tmp_path / "new/programs"
    status, printed = programs.run(
        "t5x.main", "--run_mode=precompile", "--gin_file=case.gin", f'--gin.MODEL_DIR="{folder}"'
    )
    assert status == 0, printed[-2000:]
    np.testing.assert_array_equal(np.load(folder / "assignment").ravel(), [0, 1])
    before, after = ((folder / f"lowered_hlo_{when}_optimization").read_bytes() for when in ("pre", "post"))
    assert b"jit_train_step" in before
    assert b"jit_train_step" in after
    assert b"all-reduce" in after  # of the gradients, over the two devices
    assert b"all-reduce" not in before


def test_data_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match=r"get_dataset_fn returned unsupported type <class 'list'>\."):
        precompile.precompile(
            model=types.SimpleNamespace(FEATURE_CONVERTER_CLS=None),  # type: ignore[arg-type]
            train_dataset_cfg=utils.DatasetConfig("task", {}, "train", 8, shuffle=False, seed=None),
            partitioner=partitioning.PjitPartitioner(num_partitions=1),
            model_dir="/nowhere",
            random_seed=None,
            get_dataset_fn=lambda *_: [],
        )
