"""``assert_deterministic`` in a user's test: a config that repeats passes, and a planted bug is named."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from t5x_harness.sample_tasks import CONFIGS

Run = Callable[..., pytest.RunResult]

TESTS = """
import pytest

SEEDED = ["RANDOM_SEED = 0", "train/utils.DatasetConfig.seed = 0"]
SAVED = "utils.SaveCheckpointConfig.save_dataset = True"


def test_it_is_the_same_on_another_mesh(assert_deterministic):
    result = assert_deterministic(
        "span.gin",
        repeats=1,
        resumed=False,
        bindings=[*SEEDED, SAVED, "network.T5Config.dtype = 'float32'"],
    )
    assert result.steps == 4


def test_its_data_begins_anew_after_a_restart(assert_deterministic):
    assert_deterministic("span.gin", bindings=SEEDED)
"""


@pytest.mark.journey
def test_a_config_is_deterministic_or_the_first_difference_is_named(run: Run, folder: Path) -> None:
    shutil.copy(CONFIGS / "pretrain_span_corruption.gin", folder / "span.gin")
    (folder / "test_repeats.py").write_text(TESTS)
    result = run("test_repeats.py")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            '>   *assert_deterministic("span.gin", bindings=SEEDED)',
            "E * AssertionError: the first training and the training killed and resumed differ first at step 2",
            "E * example 0 of the batch: ????????????????",
            "E * RES03: after a restart, the data begins anew: of 32 examples, * are trained twice and * never",
            "E * fix: bind utils.SaveCheckpointConfig.save_dataset = True, for data from files or a cache; *",
        ]
    )
    result.stdout.no_fnmatch_line("*determinism.py:*: *")
