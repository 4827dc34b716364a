"""Logical axes of parameters can be renamed by regex."""

from __future__ import annotations

from typing import Any

import flax.core
import numpy as np
import pytest
from flax.linen.partitioning import AxisMetadata
from t5x import utils


def variables() -> Any:
    return flax.core.freeze(
        {
            "params": {
                "logits": np.zeros((2, 4)),
                "mlp": {"wo": {"kernel": np.zeros((4, 6)), "bias": np.zeros(6)}},
            },
            "params_axes": {
                "logits_axes": AxisMetadata(names=("vocab", "embed")),
                "mlp": {"wo": {"kernel_axes": AxisMetadata(names=("embed", "mlp"))}},
            },
            "cache": {"kept": np.ones(1)},
        }
    )


def axes(changed: Any) -> dict[str, Any]:
    return {name: entry.names for name, entry in utils.flatten_dict_string_keys(changed["params_axes"]).items()}


def test_first_full_match_wins_and_missing_names_are_added() -> None:
    rules = [("mlp/.*/kernel", ("a", "b")), (".*kernel", ("never", "used")), (".*bias", ("c",)), ("log", ("no", "no"))]
    changed = utils.override_params_axes_names(variables(), rules)
    assert axes(changed) == {
        "logits_axes": ("vocab", "embed"),
        "mlp/wo/kernel_axes": ("a", "b"),
        "mlp/wo/bias_axes": ("c",),
    }
    assert changed["cache"]["kept"] == 1


def test_without_rules_nothing_changes() -> None:
    assert axes(utils.override_params_axes_names(variables())) == axes(variables())


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_wrong_rank_is_named() -> None:
    with pytest.raises(ValueError, match="does not match param rank") as error:
        utils.override_params_axes_names(variables(), [("logits", ("vocab",))])
    assert str(error.value) == ("Provided axis name override for logits does not match param rank (2): ('vocab',)")


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_variables_without_axes_are_refused() -> None:
    with pytest.raises(ValueError, match="do not contain a") as error:
        utils.override_params_axes_names(flax.core.freeze({"params": {}, "cache": {}}))
    assert str(error.value) == "Model variables do not contain a 'params_axes' collection to apply an override to."
    assert error.value.__notes__ == ["They contain cache, params."]


def test_flattening_joins_keys() -> None:
    nested = flax.core.freeze({"a": {"b": {"c": 1}}, "d": 2})
    assert utils.flatten_dict_string_keys(nested) == {"a/b/c": 1, "d": 2}
