"""The bindings that an exception is about, with configurables of this file in place of T5X's."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import gin
import pytest
import t5x
from tasks_in_text import raised

from t5x_harness.gin.config import BindingKey, GinConfig
from t5x_harness.gin.reader import read
from t5x_harness.resolve.explanation import explain_misfit
from t5x_harness.resolve.suspects import suspects
from t5x_harness.spec import Mode, RunSpec, Stage

Parse = Callable[[str], GinConfig]


@gin.register
class Saving:
    """Settings for saving checkpoints."""

    def __init__(self, manager: Callable[..., object] | None = None, keep: int = 1) -> None:
        self.manager, self.keep = manager, keep


@gin.register
class Reading:
    """Settings for reading data."""

    def __init__(
        self, batch_size: int = 8, width: int = 8, lengths: Mapping[str, int] | None = None, split: str = "train"
    ) -> None:
        self.batch_size, self.width, self.lengths, self.split = batch_size, width, lengths, split


@pytest.fixture
def parse(tmp_path: Path) -> Iterator[Parse]:
    gin.clear_config()

    def parsed(text: str) -> GinConfig:
        file = tmp_path / "config.gin"
        file.write_text(text, encoding="utf-8")
        gin.parse_config_file(str(file))
        return GinConfig(Mode.TRAIN, read(RunSpec((str(file),)), t5x_parent=Path(t5x.__file__).parents[1]))

    yield parsed
    gin.clear_config()


def refuse(text: str) -> None:
    raise ValueError(text)


def test_a_folder_that_the_harness_gave_is_not_the_users_mistake(parse: Parse) -> None:
    """The binding is found by its type alone: the line that fails names something else."""
    config = parse(f"FOLDER = 'gs://bucket/run'\n{__name__}.Saving.keep = %FOLDER\n{__name__}.Saving.manager = 0.5\n")
    config.bind(BindingKey.of_macro("FOLDER"), "/workspace/model")
    managers: list[Any] = [0.5]
    folder = "/workspace/model"
    error = raised(lambda: managers.pop()(folder))
    assert [suspect.key.parameter for suspect in suspects(error, config)] == ["manager"]


@pytest.mark.parametrize("text", ["must be nonnegative, got (-16, 7)", "got (-16, 7), not a non-negative shape"])
def test_a_negative_number_is_what_a_refusal_of_negative_numbers_is_about(parse: Parse, text: str) -> None:
    config = parse(f"{__name__}.Reading.width = 7\n{__name__}.Reading.batch_size = -16\n")
    found = suspects(raised(lambda: refuse(text)), config)[0]
    assert (found.key.parameter, found.is_convincing) == ("batch_size", True)


def test_a_value_of_another_type_is_blamed_only_if_the_error_gives_evidence(parse: Parse) -> None:
    config = parse(f"{__name__}.Reading.batch_size = 'many'\n")
    unrelated = raised(lambda: ", ".join([None]))  # type: ignore[list-item]
    assert explain_misfit(unrelated, Stage.RESOLVE, config) is None
    finding = explain_misfit(raised(lambda: int("many")), Stage.RESOLVE, config)
    assert finding is not None
    assert finding.binding == "test_suspects.Reading.batch_size"


def test_the_names_of_features_are_no_evidence(parse: Parse) -> None:
    config = parse(f"{__name__}.Reading.lengths = {{'inputs': 32}}\n")
    assert suspects(raised(lambda: refuse("Tensors in list passed to 'inputs' of 'StringJoin' Op")), config) == []


def test_none_where_t5x_takes_it_is_not_blamed_without_evidence(parse: Parse) -> None:
    imports = "from __gin__ import dynamic_registration\nfrom t5x import utils\n"
    config = parse(f"{imports}utils.DatasetConfig.task_feature_lengths = None\n")
    assert suspects(raised(lambda: refuse("an element did not match")), config) == []


def test_a_text_where_one_belongs_is_not_what_an_error_about_texts_means(parse: Parse) -> None:
    config = parse(f"{__name__}.Reading.split = 'validation'\n")

    def read(split: str) -> None:
        refuse("'<' not supported between instances of 'str' and 'bytes'" if split else "")

    split = "train"
    assert suspects(raised(lambda: read(split=split)), config) == []


def test_the_least_that_a_number_must_be_is_not_the_number(parse: Parse) -> None:
    config = parse(f"{__name__}.Reading.width = 0\n")
    assert suspects(raised(lambda: refuse("Fill dimensions must be >= 0, got input[1] = -2")), config) == []
    (suspect,) = suspects(raised(lambda: refuse("the size must be > 0, got 0")), config)
    assert suspect.is_convincing


def test_what_t5xs_own_files_bind_is_not_named_for_a_word_alone(parse: Parse) -> None:
    text = "the head_dim is odd"
    error = raised(lambda: refuse(text))
    include = "include 't5x/examples/t5/t5_1_1/tiny.gin'\n"
    assert suspects(error, parse(include)) == []
    imports = "from __gin__ import dynamic_registration\nfrom t5x.examples.t5 import network\n"
    (suspect,) = suspects(error, parse(f"{imports}{include}network.T5Config.head_dim = 7\n"))
    assert suspect.shown.startswith("network.T5Config.head_dim = 7 (")


def test_the_rank_of_an_array_is_not_a_value(parse: Parse) -> None:
    config = parse(f"{__name__}.Reading.width = 0\n")
    assert suspects(raised(lambda: refuse("Shape must be at least rank 1 but is rank 0")), config) == []


def test_a_file_of_the_same_name_is_not_a_text(parse: Parse) -> None:
    config = parse(f"{__name__}.Reading.split = 'reviews'\n")
    assert suspects(raised(lambda: refuse("no keyword arguments, in reviews.py, line 23")), config) == []
