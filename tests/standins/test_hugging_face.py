"""``load_dataset`` from declared rows, in the real library's objects where it is installed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from t5x_harness.spec import StandInPolicy
from t5x_harness.standins import hugging_face
from t5x_harness.standins.hugging_face import MissingRows, install, request_in
from t5x_harness.standins.rows import declared

ROWS = [{"text": f"row {number}", "n": number} for number in range(10)]


def samples(*names: str, splits: Any = None) -> list[Any]:
    return [declared(f"hf:{name}", splits or ROWS, Path()) for name in names]


@pytest.fixture
def noted() -> list[tuple[str, str]]:
    """What was generated."""
    return []


@pytest.fixture(autouse=True)
def restored(monkeypatch) -> None:
    """No hook is left in this process, and the hub's name leads nowhere."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(hugging_face, "_is_within_reach", lambda: False)


class TestWithTheLibrary:
    """Rows as its own datasets."""

    @pytest.fixture
    def datasets(self, monkeypatch, noted) -> Any:
        """The library, with two datasets declared."""
        library = pytest.importorskip("datasets")
        monkeypatch.setattr(library, "load_dataset", library.load_dataset)
        monkeypatch.setattr(library.load, "load_dataset", library.load.load_dataset)
        found = samples("allenai/c4:en") + samples("two", splits={"train": ROWS, "test": ROWS[:3]})
        install(found, StandInPolicy.MISSING, lambda name, what: noted.append((name, what)))
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
        """Recipes take ``load_dataset(...)[split]`` as often as ``split=``."""
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
    """A library that reaches nothing, or something."""

    @pytest.fixture
    def load(self, monkeypatch) -> Any:
        """``load_dataset`` of a generated library, under a policy."""
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
            install((), policy, lambda name, what: None)
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
        assert found is not None
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
