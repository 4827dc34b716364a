"""Programs parse Gin flags as T5X's do, and write the config that they ran with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gin
import pytest
from t5x import gin_utils


@pytest.fixture(autouse=True)
def clean_gin() -> Iterator[None]:
    gin.clear_config()
    prefixes = list(gin.config._LOCATION_PREFIXES)  # search paths, which clearing leaves as they are
    yield
    gin.clear_config()
    gin.config._LOCATION_PREFIXES[:] = prefixes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "base.gin").write_text("SIZE = 1\nNAME = 'base'\n")
    (tmp_path / "more.gin").write_text("SIZE = 2\n")
    return tmp_path


def test_later_files_and_then_bindings_win(folder: Path) -> None:
    gin_utils.parse_gin_flags([str(folder)], ["base.gin", "more.gin"], ["NAME = 'flag'"])
    assert (gin.query_parameter("%SIZE"), gin.query_parameter("%NAME")) == (2, "flag")
    with pytest.raises(RuntimeError, match="locked"):
        gin.parse_config("SIZE = 3")


def test_config_may_stay_open(folder: Path) -> None:
    gin_utils.parse_gin_flags([str(folder)], ["base.gin"], [], finalize_config=False)
    gin.parse_config("SIZE = 3")
    assert gin.query_parameter("%SIZE") == 3


def test_unknown_names_fail_unless_skipped(folder: Path) -> None:
    with pytest.raises(ValueError, match="No configurable matching 'no_such_function'"):
        gin_utils.parse_gin_flags([], [], ["no_such_function.x = 1"])
    gin_utils.parse_gin_flags([], [], ["no_such_function.x = 1"], skip_unknown=True)


def test_short_flags_become_bindings() -> None:
    args = ["program", "--gin.SIZE=3", "--gin.NAME='a=b'", "--gin_file=x", "--gin.train/f.x=@g()"]
    assert gin_utils.rewrite_gin_args(args) == [
        "program",
        "--gin_bindings=SIZE = 3",
        "--gin_bindings=NAME = 'a=b'",
        "--gin_file=x",
        "--gin_bindings=train/f.x = @g()",
    ]


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_short_flag_without_value_is_explained() -> None:
    with pytest.raises(ValueError, match="must be of the form") as error:
        gin_utils.rewrite_gin_args(["--gin.SIZE", "3"])
    assert str(error.value) == "Gin bindings must be of the form '--gin.<param>=<value>', got: --gin.SIZE"
    assert error.value.__notes__ == ["The value belongs into the same argument, after '=' and without a space."]


class Writer:
    def __init__(self) -> None:
        self.texts: list[tuple[int, dict[str, str]]] = []
        self.flushed = 0

    def write_texts(self, step: int, texts: dict[str, str]) -> None:
        self.texts.append((step, texts))

    def flush(self) -> None:
        self.flushed += 1


def test_config_is_written_to_file_and_tensorboard(tmp_path: Path) -> None:
    gin_utils.parse_gin_flags([], [], ["SIZE = 7"])
    writer = Writer()
    gin_utils.summarize_gin_config(str(tmp_path / "new" / "run"), writer, 12)
    text = (tmp_path / "new" / "run" / "config.gin").read_text()
    assert "SIZE = 7\n" in text
    assert writer.texts == [(12, {"config": gin.markdown(text)})]
    assert writer.flushed == 1
    gin_utils.summarize_gin_config(str(tmp_path), None, 0)
    assert (tmp_path / "config.gin").read_text() == text


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_provenance_is_refused_where_gin_can_not_show_it() -> None:
    with pytest.raises(TypeError, match="installed gin-config can't show where bindings come from"):
        gin_utils.get_gin_config_str(show_provenance=True)


def test_functions_for_configs() -> None:
    gin.parse_config(
        """
        A = 2
        sum_fn.var1 = %A
        sum_fn.var2 = 3
        bool_fn.var1 = %A
        string_split_fn.text = 'a,b,c'
        string_split_fn.separator = ','
        last/string_split_fn.index = -1
        """
    )
    assert (gin_utils.sum_fn(), gin_utils.bool_fn(), gin_utils.string_split_fn()) == (5, True, ["a", "b", "c"])
    with gin.config_scope("last"):
        assert gin_utils.string_split_fn(maxsplit=1) == "b,c"
