"""The names that the rules know are those of the recorded T5X."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pytest
from linting import T5X

from t5x_harness.lint.make_snapshot import main, snapshot_text
from t5x_harness.lint.snapshot import Snapshot

API = Path(__file__).parents[1] / "reference" / "api.json"


def test_the_snapshot_is_up_to_date_and_small() -> None:
    shipped = resources.files("t5x_harness.lint").joinpath("t5x_api.json").read_text(encoding="utf-8")
    assert shipped == snapshot_text(json.loads(API.read_text(encoding="utf-8"))), (
        "run: python -m t5x_harness.lint.make_snapshot tests/reference/api.json"
    )
    assert len(shipped) < 60_000


def test_it_knows_functions_classes_and_methods() -> None:
    snapshot = Snapshot(T5X)
    train = snapshot.find("__main__.train")
    assert train is not None
    assert {"model", "total_steps"} <= set(train.required)
    assert snapshot.find("t5x.utils.SaveCheckpointConfig").parameters[:2] == ("dtype", "period")  # type: ignore[union-attr,index]
    method = snapshot.find("t5x.models.EncoderDecoderModel.predict_batch_with_aux")
    assert method is not None
    assert method.parameters is not None
    assert "num_decodes" in method.parameters
    assert snapshot.find("t5x.utils.Nothing") is None
    assert snapshot.module_of("seqio.Evaluator") is None
    assert snapshot.suffixes("utils.DatasetConfig") == ("t5x.utils.DatasetConfig",)


def test_the_script_wants_its_one_argument(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage:" in capsys.readouterr().err
