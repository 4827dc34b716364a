"""A recipe's whole way: a run trains, its checkpoint goes to transformers and back, and training goes on from that."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TEST = """
import pytest
from t5x_harness import CONFIGS, ConversionError, convert

RESTORE = '''{restore}'''


def test_training_goes_on(t5x_run, tmp_path):
    gin = CONFIGS / "finetune_classify.gin"
    first = t5x_run(gin, search_paths=[CONFIGS])
    with pytest.raises(ValueError, match="no checkpoint at step 7: it has 10000, 10002, 10004"):
        convert(first, step=7)
    model = convert(first, tmp_path / "hf", check=False)
    assert (model.step, model.model_type, model.config) == (first.steps, "t5", ("the config of the run",))
    with pytest.raises(ConversionError, match="hf holds config.json"):
        convert(first, tmp_path / "hf", check=False)
    restored = convert(model.output, tmp_path / "restored", to="t5x")
    (tmp_path / "again.gin").write_text(
        "from __gin__ import dynamic_registration\\nfrom t5x import utils\\n"
        f"include '{{gin}}'\\n" + RESTORE.replace("restored/checkpoint_1000", restored.output)
    )
    again = t5x_run(tmp_path / "again.gin", search_paths=[CONFIGS])
    assert dict(again.stage("train").facts)["starts from"] == restored.output
    assert min(again.metrics["train/loss"]) == first.steps + 1
"""


@pytest.mark.journey
@pytest.mark.usefixtures("imported")
def test_a_trained_model_comes_back(pytester: pytest.Pytester, repository: Path) -> None:
    page = (repository / "docs/conversion.md").read_text()
    (restore,) = re.findall(r"^```gin\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    pytester.makepyfile(TEST.format(restore=restore))
    pytester.runpytest_subprocess("--t5x-runtime=embedded").assert_outcomes(passed=1)
