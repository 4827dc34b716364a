"""Fiddle configures a program in place of Gin."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fiddle as fdl
import pytest
from absl.testing import flagsaver
from fiddle import absl_flags as fdl_flags
from t5x import config_utils


def train(model_dir: str, steps: int = 1, summarize_config_fn: Any = None) -> tuple[str, int]:
    if summarize_config_fn is not None:
        summarize_config_fn(model_dir=model_dir, summary_writer=None, step=0)
    return model_dir, steps


def other(model_dir: str) -> str:
    return model_dir


def base() -> fdl.Config[Any]:
    return fdl.Config(train, model_dir="runs/1", summarize_config_fn=config_utils.summarize_fiddle_config)


def of_other() -> fdl.Config[Any]:
    return fdl.Config(other, model_dir="runs/1")


@pytest.fixture(scope="module", autouse=True)
def defined_flags() -> None:
    """``--gin_file`` and its like are those of T5X's program; a process can define them once."""
    importlib.import_module("t5x.main")


@pytest.fixture
def given() -> Iterator[Callable[..., None]]:
    with flagsaver.flagsaver():
        yield lambda *args: fdl_flags.flags_parser([sys.argv[0], *args])


def here(name: str) -> str:
    return f"--fdl_config={__name__}.{name}"


def test_flags_make_a_function_without_arguments(given: Any) -> None:
    given(here("base"), "--fdl.steps=5", "--fdl.summarize_config_fn=None")
    assert config_utils.using_fdl()
    config = config_utils.config_with_fiddle(train)
    assert isinstance(config, fdl.Partial)
    assert fdl.build(config)() == ("runs/1", 5)


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_without_flags_fiddle_is_not_used(given: Any) -> None:
    given()
    assert not config_utils.using_fdl()
    with pytest.raises(AssertionError, match="needs --fdl_config or --fdl_config_file"):
        config_utils.config_with_fiddle(train)


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_gin_beside_fiddle_is_refused(given: Any) -> None:
    given(here("base"), "--gin_file=run.gin")
    with pytest.raises(ValueError, match="Must pass exactly one") as error:
        config_utils.config_with_fiddle(train)
    assert str(error.value).startswith("Must pass exactly one of `--fdl_config_file`, `--fdl_config`, or `--gin_file`")
    assert str(error.value).endswith("--gin_file=['run.gin'].")


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_config_of_another_function_is_refused(given: Any) -> None:
    given(here("of_other"))
    with pytest.raises(ValueError, match="must configure") as error:
        config_utils.config_with_fiddle(train)
    assert f"must configure {__name__}.train, but they configure {__name__}.other." in str(error.value)


def test_config_is_written_as_text_and_json(given: Any, tmp_path: Path) -> None:
    given(here("base"), f"--fdl.model_dir='{tmp_path}'", "--fdl.steps=3")
    fdl.build(config_utils.config_with_fiddle(train))()
    text = (tmp_path / "fiddle_config.txt").read_text()
    assert "steps=3" in text
    assert "get_current_fiddle_config=<" not in text
    assert json.loads((tmp_path / "fiddle_config.json").read_text())["root"]


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_unprepared_config_is_explained() -> None:
    with pytest.raises(ValueError, match=r"pass the config through t5x\.config_utils\.prepare_to_summarize before"):
        fdl.build(config_utils.summarize_fiddle_config)("runs/1", None, 0)


def test_preparing_and_sanitizing_leave_the_original_alone() -> None:
    original = base()
    prepared = config_utils.prepare_to_summarize(original)
    assert prepared.summarize_config_fn.get_current_fiddle_config() is original
    assert config_utils.sanitize_summary_getter(prepared).summarize_config_fn.get_current_fiddle_config is None
    assert "get_current_fiddle_config" not in original.summarize_config_fn.__arguments__
