"""Datasets are read with the shards, order and vocabularies of their config; mistakes are named."""

import dataclasses
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import ref_tasks
import seqio
from absl import logging
from t5x import utils

CFG = utils.DatasetConfig(
    mixture_or_task_name="ref_reverse",
    task_feature_lengths={"inputs": 24, "targets": 16},
    split="validation",
    batch_size=8,
    shuffle=False,
    seed=0,
)
WORDS = {f"item {1000 + i}" for i in range(16)}


def read(cfg: utils.DatasetConfig, shard_id: int = 0, num_shards: int = 1, num_epochs: int = 1) -> list[Any]:
    ds = utils.get_dataset(cfg, shard_id, num_shards, seqio.EncDecFeatureConverter, num_epochs=num_epochs)
    return list(ds.as_numpy_iterator())


def words(batches: Sequence[Any]) -> list[str]:
    rows = [row for batch in batches for row in batch["encoder_input_tokens"]]
    return [ref_tasks.VOCAB.decode(row.tolist()).removeprefix("reverse: ") for row in rows]


def test_shards_share_the_examples_out() -> None:
    shards = [read(CFG, shard_id, 2) for shard_id in range(2)]
    assert {batch["encoder_input_tokens"].shape[0] for shard in shards for batch in shard} == {4}
    seen = [word for shard in shards for word in words(shard)]
    assert len(seen) == len(WORDS)
    assert set(seen) == WORDS


def test_same_seed_gives_the_same_order() -> None:
    first, again, other = (words(read(dataclasses.replace(CFG, shuffle=True, seed=seed))) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert set(first) == set(other) == WORDS


def test_seed_of_none_is_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = []
    monkeypatch.setattr("time.time", lambda: 1234.5)
    monkeypatch.setattr(seqio, "get_dataset", lambda **kwargs: seeds.append(kwargs["seed"]))
    utils.get_dataset(dataclasses.replace(CFG, seed=None), 0, 1, seqio.EncDecFeatureConverter)
    assert seeds == [1234]


def test_config_reaches_seqio(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(seqio, "get_dataset", lambda **kwargs: calls.append(kwargs))
    cfg = dataclasses.replace(CFG, use_cached=True, pack=True, trim_output_features=False, shuffle=True, seed=5)
    utils.get_dataset(cfg, 1, 2, seqio.EncDecFeatureConverter, num_epochs=3)
    (call,) = calls
    converter = call.pop("feature_converter")
    assert (converter.pack, converter.__class__) == (True, seqio.EncDecFeatureConverter)
    assert call == {
        "mixture_or_task_name": seqio.get_mixture_or_task("ref_reverse"),
        "task_feature_lengths": {"inputs": 24, "targets": 16},
        "dataset_split": "validation",
        "shuffle": True,
        "num_epochs": 3,
        "shard_info": seqio.ShardInfo(index=1, num_shards=2),
        "use_cached": True,
        "seed": 5,
        "trim_output_features": False,
        "batch_size": 4,
    }


def test_other_errors_of_a_source_are_left_alone() -> None:
    def broken(split, shuffle_files, seed=None):
        raise KeyError("a bug of the source")

    task = seqio.Task(
        "embedded_utils_broken",
        source=seqio.FunctionDataSource(broken, splits=["train"]),
        preprocessors=[],
        output_features=ref_tasks._PAIR,
    )
    with pytest.raises(KeyError, match="a bug of the source"):
        read(dataclasses.replace(CFG, mixture_or_task_name=task, split="train"))


def test_task_objects_do_as_well_as_names() -> None:
    task = seqio.get_mixture_or_task("ref_reverse")
    assert words(read(dataclasses.replace(CFG, mixture_or_task_name=task))) == sorted(WORDS)


class TestTrainingEvaluation:
    def datasets(self, name: str, steps: int, batch_size: int = 4, **changes: Any) -> dict[str, list[Any]]:
        cfg = dataclasses.replace(CFG, mixture_or_task_name=name, batch_size=batch_size, **changes)
        found = utils.get_training_eval_datasets(cfg, 0, 1, steps, seqio.EncDecFeatureConverter)
        return {key: list(ds.as_numpy_iterator()) for key, ds in found.items()}

    def test_each_is_exactly_as_long_as_asked(self) -> None:
        (batches,) = self.datasets("ref_reverse", 6).values()
        assert [batch["encoder_input_tokens"].shape[0] for batch in batches] == [4] * 6
        # 16 examples repeat in the same order.
        assert words(batches) == [f"item {1000 + i % 16}" for i in range(24)]

    def test_mixture_comes_with_its_tasks(self) -> None:
        assert set(self.datasets("ref_mixture", 1)) == {"ref_mixture", "ref_reverse"}

    def test_task_without_the_split_is_left_out(self) -> None:
        assert self.datasets("ref_reverse", 1, split="dev") == {}

    def test_hosts_see_different_examples_and_equally_many(self) -> None:
        shards = []
        for shard_id in range(2):
            found = utils.get_training_eval_datasets(CFG, shard_id, 2, 2, seqio.EncDecFeatureConverter)
            shards.append(words(list(found["ref_reverse"].as_numpy_iterator())))
        assert [len(shard) for shard in shards] == [8, 8]
        assert set(shards[0]) | set(shards[1]) == WORDS

    def test_packed_rows_count_as_examples(self) -> None:
        (batches,) = self.datasets(
            "ref_reverse", 2, pack=True, task_feature_lengths={"inputs": 64, "targets": 64}
        ).values()
        assert [batch["encoder_segment_ids"].shape for batch in batches] == [(4, 64)] * 2
        assert max(batch["encoder_segment_ids"].max() for batch in batches) > 1

    @pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
    def test_deterministic_is_refused(self) -> None:
        with pytest.raises(ValueError, match="a pipeline that T5X's public release does not have"):
            utils.get_training_eval_datasets(
                CFG, 0, 1, 1, seqio.EncDecFeatureConverter, deterministic=True, model_dir="x"
            )


class TestModule:
    def test_is_imported_first(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "embedded_utils_late_tasks.py").write_text("LOADED = True\n")
        monkeypatch.syspath_prepend(tmp_path)
        read(dataclasses.replace(CFG, module="embedded_utils_late_tasks"))
        assert sys.modules.pop("embedded_utils_late_tasks").LOADED

    @pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
    def test_that_is_not_there_names_the_binding(self) -> None:
        with pytest.raises(ModuleNotFoundError) as error:
            read(dataclasses.replace(CFG, module="no_such_package.tasks"))
        assert str(error.value) == (
            "No module named 'no_such_package', which `DatasetConfig.module = 'no_such_package.tasks'` asks for. "
            "Correct the name (MIXTURE_OR_TASK_MODULE in most configs), or put the folder that holds it on PYTHONPATH."
        )

    def test_whose_own_import_fails_keeps_its_error(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "embedded_utils_bad_tasks.py").write_text("import no_such_dependency\n")
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(ModuleNotFoundError, match=r"^No module named 'no_such_dependency'$"):
            utils.import_module("embedded_utils_bad_tasks")

    @pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
    def test_with_late_configurables_is_told_to_be_imported_in_gin(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "embedded_utils_gin_tasks.py").write_text(
            "raise RuntimeError('Attempted to add a new configurable after the config was locked.')\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(RuntimeError, match="add the line `import embedded_utils_gin_tasks` and drop"):
            utils.import_module("embedded_utils_gin_tasks")


class TestAirIO:
    @pytest.fixture
    def task(self) -> Any:
        return type("Task", (), {"__module__": "airio.core"})()

    @pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
    def test_task_is_refused_in_one_sentence(self, task: Any) -> None:
        with pytest.raises(ValueError, match="belongs to AirIO") as error:
            read(dataclasses.replace(CFG, mixture_or_task_name=task))
        assert str(error.value) == (
            "airio.core.Task belongs to AirIO, which T5X's get_dataset does not read: bind train.get_dataset_fn to a "
            "function that returns an airio.core.AirIODatasetIterator, or name a SeqIO task."
        )

    @pytest.mark.embedded("an AirIO of the test's own takes the place of the one that T5X imports")
    def test_vocabularies_are_those_that_airio_names(self, task: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        vocabulary = seqio.ByteVocabulary()
        airio = types.ModuleType("airio.core")
        airio.get_vocabularies = lambda asked: {"inputs": vocabulary, "targets": vocabulary} if asked is task else {}
        monkeypatch.setitem(sys.modules, "airio", types.ModuleType("airio"))
        monkeypatch.setitem(sys.modules, "airio.core", airio)
        found = utils.get_vocabulary(dataclasses.replace(CFG, mixture_or_task_name=task))
        assert found == (vocabulary, vocabulary)

    @pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
    def test_settings_are_said_to_be_ignored(self, monkeypatch: pytest.MonkeyPatch) -> None:
        warnings: list[str] = []
        monkeypatch.setattr(logging, "warning", lambda text, *args: warnings.append(text % args))
        monkeypatch.setattr(seqio, "get_dataset", lambda **kwargs: None)
        utils.get_dataset(dataclasses.replace(CFG, num_workers=2), 0, 1, seqio.EncDecFeatureConverter)
        assert warnings == ["`DatasetConfig.num_workers` only concerns AirIO sources; it is ignored for a SeqIO one."]


BYTES = seqio.ByteVocabulary()
SHORT = {"split": "train", "batch_size": 1, "shuffle": False, "seed": 0}


def cfg_of(features: dict[str, seqio.Vocabulary]) -> utils.DatasetConfig:
    task = seqio.Task(
        "embedded_utils_vocabularies",
        source=seqio.FunctionDataSource(ref_tasks._documents, splits=["train"]),
        preprocessors=[],
        output_features={name: seqio.Feature(vocabulary) for name, vocabulary in features.items()},
    )
    return utils.DatasetConfig(task, {}, **SHORT)


def model_with(inputs: seqio.Vocabulary, outputs: seqio.Vocabulary) -> types.SimpleNamespace:
    return types.SimpleNamespace(input_vocabulary=inputs, output_vocabulary=outputs)


@pytest.mark.parametrize(("size", "divisor", "expected"), [(259, 128, 384), (256, 128, 256), (1, 10, 10), (0, 8, 0)])
def test_sizes_are_rounded_up(size: int, divisor: int, expected: int) -> None:
    assert utils.round_vocab_size_to_multiple(seqio.PassThroughVocabulary(size), divisor) == expected


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
class TestErrors:
    def test_batch_that_does_not_divide_names_both_numbers_and_the_nearest(self) -> None:
        for call in (
            lambda: utils.get_dataset(dataclasses.replace(CFG, batch_size=6), 0, 4, seqio.EncDecFeatureConverter),
            lambda: utils.get_training_eval_datasets(
                dataclasses.replace(CFG, batch_size=6), 0, 4, 1, seqio.EncDecFeatureConverter
            ),
        ):
            with pytest.raises(ValueError, match="must be divisible") as error:
                call()
            assert str(error.value) == "Batch size (6) must be divisible by number of shards (4)."
            assert error.value.__notes__ == ["The nearest that is: 4 or 8."]

    def test_unknown_task_is_answered_with_the_close_names(self) -> None:
        with pytest.raises(ValueError, match="did you mean") as error:
            read(dataclasses.replace(CFG, mixture_or_task_name="ref_revrse"))
        text = str(error.value)
        assert text.startswith("No Task or Mixture found with name 'ref_revrse'; did you mean 'ref_reverse'")
        assert text.endswith(
            "import the module that registers it in the Gin file, or name the module in MIXTURE_OR_TASK_MODULE."
        )
        with pytest.raises(ValueError, match=r"nor one of a similar name among the [0-9]+ that are registered"):
            read(dataclasses.replace(CFG, mixture_or_task_name="zzz"))
        with pytest.raises(
            TypeError, match="must be the name of a registered task or mixture, or one itself; got None"
        ):
            read(dataclasses.replace(CFG, mixture_or_task_name=None))

    @pytest.mark.parametrize("name", ["ref_reverse", "ref_mixture"])
    def test_missing_split_is_answered_with_those_there_are(self, name: str) -> None:
        with pytest.raises(ValueError, match="has no split") as error:
            read(dataclasses.replace(CFG, mixture_or_task_name=name, split="dev"))
        assert str(error.value) == (
            f"'{name}' has no split 'dev', which `DatasetConfig.split` asks for; it has 'test', 'train', 'validation'."
        )

    def test_missing_cache_is_answered_with_where_it_was_looked_for(self) -> None:
        task = seqio.Task(
            "embedded_utils_cacheable",
            source=seqio.FunctionDataSource(ref_tasks._documents, splits=["validation"]),
            preprocessors=[seqio.CacheDatasetPlaceholder()],
            output_features=ref_tasks._PAIR,
        )
        with pytest.raises(AssertionError) as error:
            read(dataclasses.replace(CFG, mixture_or_task_name=task, use_cached=True))
        text = str(error.value)
        assert text.startswith(
            "'embedded_utils_cacheable' does not exist in any of the task cache directories (searched: "
        )
        assert "Set `use_cached` to False (USE_CACHED_TASKS in most configs)" in text

    def test_continuing_is_refused(self) -> None:
        with pytest.raises(ValueError, match="`continue_from_last_checkpoint` must be False"):
            utils.get_dataset(CFG, 0, 1, seqio.EncDecFeatureConverter, continue_from_last_checkpoint=True)

    def test_inputs_and_targets_may_differ(self) -> None:
        other = seqio.ByteVocabulary(extra_ids=9)
        cfg = cfg_of({"inputs": BYTES, "targets": other})
        assert utils.get_vocabulary(cfg) == (BYTES, other)
        utils.verify_matching_vocabs(cfg, model_with(seqio.ByteVocabulary(), seqio.ByteVocabulary(9)))

    def test_lone_features_share_one_vocabulary(self) -> None:
        assert utils.get_vocabulary(cfg_of({"targets": BYTES})) == (BYTES, BYTES)
        through = seqio.PassThroughVocabulary(5)
        assert utils.get_vocabulary(cfg_of({"a": through, "targets": BYTES, "b": BYTES})) == (BYTES, BYTES)
        assert utils.get_vocabulary(cfg_of({"a": through})) == (through, through)

    def test_no_features_are_refused(self) -> None:
        with pytest.raises(
            ValueError, match="'embedded_utils_vocabularies' has no vocabulary: it has no output features"
        ):
            utils.get_vocabulary(cfg_of({}))

    def test_mismatch_lists_what_differs_and_no_addresses(self) -> None:
        model = model_with(seqio.SentencePieceVocabulary("gs://bucket/spm.model", extra_ids=100), BYTES)
        with pytest.raises(ValueError, match="do not match") as error:
            utils.verify_matching_vocabs(utils.DatasetConfig("ref_reverse", {}, **SHORT), model)
        text = str(error.value)
        assert text.startswith("Model and Task vocabularies do not match for 'ref_reverse':\n")
        assert "  task inputs != model.input_vocabulary\n    class: ByteVocabulary != SentencePieceVocabulary\n" in text
        assert "sentencepiece_model_file: (has none) != 'gs://bucket/spm.model'" in text
        assert "targets" not in text  # these vocabularies agree
        assert " object at 0x" not in text
        assert text.endswith(
            "Bind the model's vocabulary (VOCABULARY in most configs) to the task's, or choose a task made for it."
        )

    def test_mismatch_of_two_models_shows_only_the_setting(self) -> None:
        task = cfg_of(dict.fromkeys(("inputs", "targets"), seqio.SentencePieceVocabulary("a.model", extra_ids=100)))
        other = seqio.SentencePieceVocabulary("a.model")
        with pytest.raises(ValueError, match="do not match") as error:
            utils.verify_matching_vocabs(task, model_with(other, other))
        assert str(error.value).split("\n")[1:-1] == [
            "  task inputs != model.input_vocabulary",
            "    extra_ids: 100 != 0",
            "  task targets != model.output_vocabulary",
            "    extra_ids: 100 != 0",
        ]

    def test_equal_looking_vocabularies_without_equality_are_explained(self) -> None:
        class Mine(seqio.PassThroughVocabulary):
            __eq__ = object.__eq__
            __hash__ = object.__hash__

        task = cfg_of({"inputs": Mine(7), "targets": BYTES})
        with pytest.raises(
            ValueError, match="but two objects that do not compare equal: define __eq__ or share one object"
        ):
            utils.verify_matching_vocabs(task, model_with(Mine(7), BYTES))

    def test_module_is_said_to_be_deprecated(self) -> None:
        cfg = dataclasses.replace(utils.DatasetConfig("ref_reverse", {}, **SHORT), module="ref_tasks")
        with pytest.warns(DeprecationWarning, match="import the module in the Gin file"):
            utils.get_vocabulary(cfg)

    def test_lone_features_with_different_vocabularies_are_refused(self) -> None:
        with pytest.raises(ValueError, match="they are different") as error:
            utils.get_vocabulary(cfg_of({"targets": BYTES, "aux": seqio.ByteVocabulary(extra_ids=4)}))
        assert str(error.value) == (
            "'embedded_utils_vocabularies' does not have both 'inputs' and 'targets', so all its features must share "
            "one vocabulary, but they are different:\n"
            "  aux != targets\n"
            "    extra_ids: 4 != 0\n"
            "    vocab_size: 263 != 259"
        )
