"""Rows that a user declares are read and checked, and ``load_dataset`` returns them."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from t5x_harness.spec import StandInPolicy
from t5x_harness.standins import rows as standin_rows
from t5x_harness.standins.rows import MissingRows, SampleError, Samples, declared, install_rows, read_rows, request_in


@pytest.mark.parametrize(
    ("name", "text", "rows"),
    [
        ("a.jsonl", '{"a": 1, "b": {"c": ["x"]}}\n\n{"a": 2, "b": {"c": []}}\n',
         [{"a": 1, "b": {"c": ["x"]}}, {"a": 2, "b": {"c": []}}]),
        ("a.tsv", 'de\ten\nein "Haus\ta house\n', [{"de": 'ein "Haus', "en": "a house"}]),
        ("a.csv", 'de,en\n"ein, zwei",one\n', [{"de": "ein, zwei", "en": "one"}]),
        ("a.txt", "first\nsecond\n", [{"text": "first"}, {"text": "second"}]),
    ],
)  # fmt: skip
def test_files_by_their_ending(tmp_path: Path, name: str, text: str, rows: list[Any]):
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert read_rows(tmp_path / name) == rows


def test_rows_of_a_split_come_before_those_of_every_split(tmp_path: Path):
    (tmp_path / "train.txt").write_text("from a file\n", encoding="utf-8")
    samples = declared("mine", {"train": "train.txt", "*": [{"text": "inline"}]}, tmp_path)
    assert samples.rows("train") == [{"text": "from a file"}]
    assert samples.rows("test") == [{"text": "inline"}]
    assert declared("mine", {"train": "train.txt"}, tmp_path).rows("test") is None
    assert Samples.from_text(samples.to_text()) == samples


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "mine has no rows"),
        ({}, "mine has no rows"),
        ({"test": []}, "mine, split test has no rows"),
        (3, "mine: give a list of rows (tables of columns), or the name of a file, not 3"),
        (["text"], "mine: give a list of rows (tables of columns), or the name of a file, not ['text']"),
        ([{"a": 1}, {"b": 1}], "mine: row 1 lacks a, which row 0 has"),
        ([{"a": 1}, {"a": 1, "c": 1, "b": 1}], "mine: row 1 has b, c, which row 0 lacks"),
        ("none.jsonl", "none.jsonl cannot be read: "),
        ("rows.parquet", "rows.parquet: rows are read from .jsonl, .tsv, .csv and .txt files"),
        ("broken.jsonl", "broken.jsonl:2: no JSON: "),
        ("list.jsonl", "list.jsonl:1: one JSON object a line, not [1, 2]"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, value: Any, message: str):
    (tmp_path / "rows.parquet").touch()
    (tmp_path / "broken.jsonl").write_text('{"a": 1}\n{"a": \n', encoding="utf-8")
    (tmp_path / "list.jsonl").write_text("[1, 2]\n", encoding="utf-8")
    with pytest.raises(SampleError) as caught:
        declared("mine", value, tmp_path)
    assert message in str(caught.value)


def test_fixtures_collect_rows_for_the_runs_of_a_test(t5x_samples, sample_rows, fake_hf_dataset):
    sample_rows("mine", [{"text": "a"}])
    sample_rows("mine", [{"text": "b"}], split="test")
    fake_hf_dataset("allenai/c4", "en", rows=[{"text": "c"}], split="train")
    fake_hf_dataset("imdb", rows=[{"text": "d"}])
    assert t5x_samples == {
        "mine": {"*": [{"text": "a"}], "test": [{"text": "b"}]},
        "hf:allenai/c4:en": {"train": [{"text": "c"}]},
        "hf:imdb": {"*": [{"text": "d"}]},
    }


def test_fixtures_refuse_rows_that_do_not_go_together(sample_rows):
    with pytest.raises(ValueError, match="mine: row 1 lacks a, which row 0 has"):
        sample_rows("mine", [{"a": 1}, {"b": 1}])


ROWS = [{"text": f"row {number}", "n": number} for number in range(10)]


def samples(*names: str, splits: Any = None) -> list[Any]:
    return [declared(f"hf:{name}", splits or ROWS, Path()) for name in names]


@pytest.fixture
def noted() -> list[tuple[str, str]]:
    """Returns an empty list for notes of what was generated."""
    return []


@pytest.fixture(autouse=True)
def restored(monkeypatch) -> Iterator[None]:
    """Removes the harness's hooks from this process after each test, and keeps the hub out of reach."""
    monkeypatch.setattr(standin_rows, "_is_within_reach", lambda: False)
    before = list(sys.meta_path)
    yield
    ours = [each for each in sys.meta_path if type(each).__module__.startswith("t5x_harness") and each not in before]
    sys.meta_path[:] = [each for each in sys.meta_path if each not in ours]


class TestWithTheLibrary:
    """The real library returns rows as its own datasets."""

    @pytest.fixture
    def datasets(self, monkeypatch, noted) -> Any:
        """Returns the library, with two datasets declared."""
        library = pytest.importorskip("datasets")
        monkeypatch.setattr(library, "load_dataset", library.load_dataset)
        monkeypatch.setattr(library.load, "load_dataset", library.load.load_dataset)
        found = samples("allenai/c4:en") + samples("two", splits={"train": ROWS, "test": ROWS[:3]})
        install_rows(found, StandInPolicy.MISSING, lambda name, what: noted.append((name, what)))
        return library

    def test_a_stream_can_do_what_streams_can(self, datasets, noted):
        stream = datasets.load_dataset("allenai/c4", "en", split="train", streaming=True)
        assert isinstance(stream, datasets.IterableDataset)
        assert [row["n"] for row in stream.skip(2).take(2)] == [2, 3]
        assert sorted(row["n"] for row in stream.shuffle(seed=0, buffer_size=4)) == list(range(10))
        assert next(iter(stream.map(lambda row: {"upper": row["text"].upper()})))["upper"] == "ROW 0"
        assert noted == [("allenai/c4:en", "10 declared rows")]

    def test_splits(self, datasets):
        assert datasets.load_dataset("two", split="test").num_rows == 3
        assert datasets.load_dataset("two", split="train[:50%]")["n"] == [0, 1, 2, 3, 4]
        assert datasets.load_dataset("two", split="train[8:]+test")["n"] == [8, 9, 0, 1, 2]
        assert set(datasets.load_dataset("two")) == {"train", "test"}
        assert set(datasets.load_dataset("two", streaming=True)) == {"train", "test"}
        with pytest.raises(ValueError, match=r"Bad split: dev. Available splits: \['train', 'test'\]"):
            datasets.load_dataset("two", split="dev", streaming=True)

    def test_rows_for_all_splits_are_in_each_that_is_asked_for(self, datasets):
        """Recipes use ``load_dataset(...)[split]`` as often as ``split=``."""
        for streaming in (False, True):
            found = datasets.load_dataset("allenai/c4", "en", streaming=streaming)
            assert set(found) == {"train", "validation", "test"}
            assert [row["n"] for row in found["validation"]] == list(range(10))
        assert len(list(datasets.load_dataset("allenai/c4", "en", split="dev", streaming=True))) == 10

    def test_a_stream_has_shards_to_divide_among_hosts(self, datasets):
        stream = datasets.load_dataset("allenai/c4", "en", split="train", streaming=True)
        parts = [[row["n"] for row in stream.shard(num_shards=4, index=index)] for index in range(4)]
        assert sorted(n for part in parts for n in part) == list(range(10))
        assert all(parts)

    def test_files_are_loaded_as_ever(self, datasets, tmp_path: Path):
        (tmp_path / "a.jsonl").write_text('{"a": 1}\n')
        data = datasets.load_dataset(
            "json", data_files=str(tmp_path / "a.jsonl"), split="train", cache_dir=str(tmp_path)
        )
        assert data["a"] == [1]


class TestWithoutRows:
    """A fake library that reads only files and its cache, because the hub is out of reach."""

    @pytest.fixture
    def load(self, monkeypatch) -> Any:
        """Returns ``load_dataset`` of a fake library, under a policy."""
        monkeypatch.setitem(sys.modules, "huggingface_hub", ModuleType("huggingface_hub"))
        constants = ModuleType("huggingface_hub.constants")
        constants.HF_HUB_OFFLINE = False
        monkeypatch.setitem(sys.modules, "huggingface_hub.constants", constants)
        sys.modules["huggingface_hub"].constants = constants

        def real(path: str, *_: Any, **__: Any) -> str:
            if path == "kept" and constants.HF_HUB_OFFLINE:
                return "from the cache"
            if path == "json":
                return "from files"
            raise ConnectionError(f"Couldn't reach {path}")

        def call(policy: StandInPolicy, *arguments: Any) -> Any:
            module = ModuleType("datasets")
            module.load_dataset = real
            module.load = SimpleNamespace(load_dataset=real)
            module.config = SimpleNamespace(HF_HUB_OFFLINE=False)
            monkeypatch.setitem(sys.modules, "datasets", module)
            install_rows((), policy, lambda name, what: None)
            try:
                return module.load_dataset(*arguments)
            finally:
                assert constants.HF_HUB_OFFLINE is module.config.HF_HUB_OFFLINE is False

        return call

    def test_they_are_asked_for_by_dataset_and_line(self, load):
        with pytest.raises(MissingRows) as caught:
            load(StandInPolicy.MISSING, "allenai/c4", "en")
        text = str(caught.value)
        assert text.startswith(f"{__file__}:")
        assert text.endswith(
            "load_dataset('allenai/c4', 'en') cannot reach its dataset here, and no rows are declared for it: give a "
            'few in [tool.t5x_harness.samples] of pyproject.toml, "hf:allenai/c4:en" = "rows.jsonl", or in a test with '
            "the fixture fake_hf_dataset"
        )
        found = request_in(f"UNKNOWN: MissingRows: {text}\nTraceback (most recent call last):\n  more")
        assert found.message.startswith("load_dataset('allenai/c4', 'en') cannot reach")
        assert found.fix.endswith("the fixture fake_hf_dataset")

    def test_what_the_hub_left_here_before_is_read(self, load):
        assert load(StandInPolicy.MISSING, "kept") == "from the cache"

    def test_files_need_none(self, load):
        assert load(StandInPolicy.ALL, "json") == "from files"

    def test_all_asks_for_them_even_if_the_dataset_is_here(self, load):
        with pytest.raises(MissingRows, match=r"load_dataset\('kept'\)"):
            load(StandInPolicy.ALL, "kept")

    def test_off_leaves_the_librarys_error(self, load):
        with pytest.raises(ConnectionError, match="Couldn't reach allenai/c4"):
            load(StandInPolicy.OFF, "allenai/c4")


def test_other_texts_hold_no_request():
    assert request_in("ValueError: load_dataset failed") is None
