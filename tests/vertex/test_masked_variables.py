"""Which variables are not for terminals and logs."""

from __future__ import annotations

import pytest

from t5x_harness.promotion.resources import TpuResources
from t5x_harness.system.texts import MASK, masked


@pytest.mark.parametrize(
    "name",
    "HF_TOKEN HUGGING_FACE_HUB_TOKEN WANDB_API_KEY AWS_SECRET_ACCESS_KEY DB_PASSWORD GHTOKEN apikey client-secret KEY "
    "PRIVATE_KEY_ID MY_AUTH GOOGLE_APPLICATION_CREDENTIALS TOKEN_1".split(),
)
def test_names_that_say_so(name: str) -> None:
    assert masked(name, "x") == MASK
    assert masked(name, "") == ""


@pytest.mark.parametrize(
    "name", "MAX_TOKENS TOKENIZERS_PARALLELISM TOKENIZER_PATH KEYBOARD MONKEY PYTHONPATH AUTHOR XLA_FLAGS".split()
)
def test_names_that_do_not(name: str) -> None:
    assert masked(name, "gs://bucket/x") == "gs://bucket/x"


@pytest.mark.parametrize(
    "value",
    [
        "hf_" + "a1" * 17,
        "ghp_" + "a1" * 18,
        "sk-" + "a1" * 20,
        "https://me:word@example.org/x",
        "-----BEGIN RSA PRIVATE KEY-----\nx",
    ],
)
def test_values_that_say_so_whatever_their_name(value: str) -> None:
    assert masked("X", value) == MASK


def test_a_long_value_is_read_once() -> None:
    """One that is read again from each of its characters would never be done."""
    assert masked("X", "x" * 2_000_000) == "x" * 2_000_000


def test_no_repr_shows_a_variable() -> None:
    """As pytest writes it where an assertion fails."""
    assert "word" not in repr(TpuResources(env={"HF_TOKEN": "word"}))
