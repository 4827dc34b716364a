"""Libraries still have every private name that upstream/ uses, or the failure names both."""

import functools
import importlib.metadata
import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, ParamSpec

import pytest

pytest.importorskip("jax")
gin = pytest.importorskip("gin")
seqio = pytest.importorskip("seqio")

import tensorflow as tf  # noqa: E402

from t5x_harness.upstream import seqio as upstream  # noqa: E402
from t5x_harness.upstream.autograph import keep_conversions  # noqa: E402

P = ParamSpec("P")


def canary(library: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Makes a test of a function of ``t5x_harness.upstream`` name the release that is to blame if the test fails.

    Args:
      library: the distribution whose private names the function uses.
    """

    def of(test: Callable[P, None]) -> Callable[P, None]:
        @functools.wraps(test)
        def named(*args: P.args, **kwargs: P.kwargs) -> None:
            try:
                test(*args, **kwargs)
            except Exception as error:
                release = f"{library} {importlib.metadata.version(library)}"
                pytest.fail(
                    f"{release} differs from what t5x_harness/upstream/ expects: {type(error).__name__}: {error}"
                )

        return named

    return of


def double(number: Any) -> Any:
    return number * 2 if number > 1 else number


@canary("tensorflow")
def test_autograph_s_conversions_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorflow.python.autograph.impl import api

    monkeypatch.setattr(api, "_TRANSPILER", api.PyToTF())
    assert keep_conversions()
    assert list(tf.data.Dataset.range(3).map(double).as_numpy_iterator()) == [0, 1, 4]


@canary("tensorflow")
def test_tensorflow_says_that_it_has_started_and_what_takes_paths() -> None:
    import importlib

    from t5x_harness.upstream.tensorflow import NATIVE_FILES, OPERATIONS_ON_PATHS, has_started

    tf.constant(1)
    assert has_started()
    for module, names in OPERATIONS_ON_PATHS.items():
        assert all(callable(getattr(importlib.import_module(module), name)) for name in names)
    assert callable(importlib.import_module(NATIVE_FILES).GetMatchingFiles)


@canary("jax")
def test_jax_joins_a_pod_and_asks_for_devices_in_functions_of_its_own() -> None:
    import jax
    from jax._src import distributed, xla_bridge

    assert jax.distributed.initialize is distributed.initialize
    assert callable(xla_bridge.backends)
    assert callable(xla_bridge.backends_are_initialized)


@canary("jax")
def test_jax_has_a_rule_of_the_cpu_s_own_for_each_kind_of_matrix_product() -> None:
    import jax
    from jax.interpreters import mlir

    from t5x_harness.upstream.jax import use_tpu_numerics

    rules = mlir._platform_specific_lowerings["cpu"]
    kinds = (jax.lax.dot_general_p, jax.lax.conv_general_dilated_p)
    own = [rules[kind].rule for kind in kinds]
    use_tpu_numerics(True)
    try:
        assert [rules[kind].rule.func.__name__ for kind in kinds] == ["_lower_dot", "_lower_convolution"]
    finally:
        use_tpu_numerics(False)
    assert [rules[kind].rule for kind in kinds] == own


@canary("tensorflow-datasets")
def test_a_builder_prepares_the_examples_that_it_is_given(tmp_path: Path) -> None:
    import tensorflow_datasets as tfds

    from t5x_harness.upstream.seqio import list_length, made_splits, source_of_splits, use_examples

    builder = tfds.builder("mnist:3.0.1", data_dir=str(tmp_path))
    assert "_split_generators" in (source_of_splits(type(builder)) or "")
    use_examples(builder, {"train": iter(())})
    assert made_splits(builder, None) == ("train",)
    assert type(builder)._log_download_bytes is not None
    assert type(builder)._log_download_done is not None
    assert list_length(tfds.features.Sequence(tfds.features.Text(), length=3)) == 3
    assert list_length(tfds.features.Sequence(tfds.features.Text())) is None


@canary("google-cloud-aiplatform")
def test_google_s_sdk_makes_stubs_and_forgets_its_settings() -> None:
    aiplatform = pytest.importorskip("google.cloud.aiplatform")
    from google.cloud.aiplatform_v1.services.job_service.transports import grpc, rest_base

    from t5x_harness.upstream.google_sdk import forget_settings, http_options, transport_on

    paths: list[str] = []
    channel = SimpleNamespace(unary_unary=lambda path, **_: paths.append(path))
    transport_on(grpc.JobServiceGrpcTransport, channel).create_custom_job  # noqa: B018  a property that makes a stub
    assert paths == ["/google.cloud.aiplatform.v1.JobService/CreateCustomJob"]
    options = http_options(rest_base._BaseJobServiceRestTransport, "CreateCustomJob")
    assert [(each["method"], each["body"]) for each in options] == [("post", "custom_job")]
    aiplatform.init(project="canary")
    forget_settings(aiplatform)
    assert aiplatform.initializer.global_config._project is None
    assert aiplatform.metadata.metadata._experiment_tracker.experiment_name is None


@canary("pytest")
def test_pytest_s_parts_are_where_they_were(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest
        from t5x_harness.upstream import pytest as own

        class Item(pytest.Item):
            def runtest(self):
                assert own.fixture_value("answer", self) == 42
                assert len(own.fixture_definitions("answer", self)) == 1
                assert own.temporary_folders(self.config).getbasetemp().is_dir()
                reporter = self.config.pluginmanager.getplugin("terminalreporter")
                assert own.terminal_columns(reporter) > 0
                assert own.colors(reporter) is False
                with self.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
                    own.write_past_line(reporter, "[past]")
                assert own.junit_file(self.config) is not None
                assert own.compiled_expression("a and not b").evaluate(lambda name, **_: name == "a")
                assert own.compiled_expression("a and") is None
                raise LookupError

            def repr_failure(self, excinfo):
                if excinfo.type is LookupError:
                    return own.failure("text of our own", "somewhere.txt", 3, "summary of our own")
                return super().repr_failure(excinfo)

            def reportinfo(self):
                return self.path, 6, "item"

        class Skipped(Item):
            def runtest(self):
                own.skip_at_item("reason of our own")

        class File(pytest.File):
            def collect(self):
                return [Item.from_parent(self, name="item"), Skipped.from_parent(self, name="skipped")]

        def pytest_collect_file(parent, file_path):
            return File.from_parent(parent, path=file_path) if file_path.suffix == ".txt" else None

        @pytest.fixture
        def answer():
            return 42
        """
    )
    pytester.path.joinpath("items.txt").touch()
    done = pytester.runpytest_subprocess("-rs", "--junitxml=out.xml", "-p", "no:cacheprovider")
    done.assert_outcomes(failed=1, skipped=1)
    done.stdout.fnmatch_lines(["*[[]past]*", "text of our own", "SKIPPED*items.txt:7: reason of our own"])


@canary("pytest-xdist")
def test_xdist_asks_for_the_group_of_an_item() -> None:
    pytest.importorskip("xdist")
    from t5x_harness.upstream.pytest import scheduling_by

    kind = scheduling_by(lambda nodeid: "ours" if nodeid.startswith("a.gin") else None)
    scheduling = kind.__new__(kind)
    assert scheduling._split_scope("a.gin::run::train") == "ours"
    assert scheduling._split_scope("test_b.py::test_c") == "test_b.py::test_c"


def test_python_still_ends_threads_and_calls_what_was_registered() -> None:
    """The names are not called here, as that would end things that pytest needs."""
    import atexit

    assert callable(getattr(threading, "_shutdown", None)), "this Python has no threading._shutdown"
    assert callable(getattr(atexit, "_run_exitfuncs", None)), "this Python has no atexit._run_exitfuncs"


def test_the_release_and_the_name_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(gin.config, "_FILE_READERS")
    with pytest.raises(pytest.fail.Exception) as failed:
        canary("gin-config")(lambda: print(gin.config._FILE_READERS))()
    version = importlib.metadata.version("gin-config")
    assert str(failed.value) == (
        f"gin-config {version} differs from what t5x_harness/upstream/ expects: AttributeError: "
        "module 'gin.config' has no attribute '_FILE_READERS'"
    )


@canary("gin-config")
def test_gin_keeps_a_config_and_its_readers_where_they_are_read() -> None:
    from t5x_harness.upstream.gin import bound_values, file_readers

    gin.parse_config("NUMBER = 3")
    try:
        assert bound_values()["NUMBER", "gin.macro"] == {"value": 3}
        readers = list(file_readers())
        gin.config.register_file_reader(str.upper, str.isupper)
        assert (str.upper, str.isupper) in file_readers()
        file_readers()[:] = readers
    finally:
        gin.clear_config()


FEATURES = {"targets": seqio.Feature(seqio.PassThroughVocabulary(size=20))}


def numbers(split: str, shuffle_files: bool, seed: int | None = None) -> tf.data.Dataset:
    assert (split, shuffle_files, seed) == ("train", False, None)
    return tf.data.Dataset.range(3).map(lambda number: {"targets": tf.cast(number, tf.int32)[None]})


def accuracy(targets: Any, predictions: Any) -> dict[str, float]:
    return {"accuracy": float(targets == predictions)}


def doubled(dataset: tf.data.Dataset) -> tf.data.Dataset:
    return dataset.map(lambda example: {"targets": example["targets"] * 2})


def source(**options: Any) -> Any:
    return seqio.FunctionDataSource(numbers, splits=("train",), **options)


def task(**options: Any) -> Any:
    return seqio.Task("canary", source(), FEATURES, preprocessors=(doubled,), **options)


def targets(dataset: tf.data.Dataset) -> list[int]:
    return [int(example["targets"][0]) for example in dataset.as_numpy_iterator()]


@canary("seqio")
def test_what_a_task_was_defined_with_is_given_as_its_module_gives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    other = seqio.metrics.Metric
    made = task(metric_fns=[accuracy], metric_objs=[other])
    assert (list(upstream.metric_functions(made)), list(upstream.metric_objects(made))) == ([accuracy], [other])
    assert list(upstream.preprocessors(task())) == [doubled]
    monkeypatch.setattr(seqio.TaskRegistry, "_REGISTRY", {})
    seqio.TaskRegistry.add("canary", source(), FEATURES)
    rate = functools.partial(float, 2)
    assert upstream.weights_of(seqio.Mixture("mixed", [("canary", rate)])) == {"canary": rate}
    assert upstream.vocabulary_file(seqio.SentencePieceVocabulary("x.model")) == "x.model"
    assert upstream.vocabulary_file(seqio.ByteVocabulary()) is None


@canary("seqio")
def test_examples_go_through_some_preprocessors() -> None:
    made = task()
    with seqio.utils.map_seed_manager(0):
        found = upstream.preprocess(made, numbers("train", False), [doubled, doubled], {"targets": 1})
        assert targets(found) == [0, 4, 8]


@canary("seqio")
def test_a_task_reads_from_another_source_also_in_place_of_its_cache() -> None:
    made = seqio.Task(
        "canary", source(), FEATURES, preprocessors=(doubled, seqio.CacheDatasetPlaceholder(required=True), doubled)
    )
    other = source()
    upstream.replace_source(made, other)
    assert made.source is other
    upstream.cached_examples_from(made, source)
    found = made.get_dataset({"targets": 1}, "train", use_cached=True, shuffle=False)
    assert targets(found) == [0, 2, 4]


@canary("seqio")
def test_sources_tell_their_patterns_functions_and_sizes() -> None:
    files = seqio.TextLineDataSource({"train": "a.tsv", "test": ["b.tsv", "c.tsv"]})
    assert upstream.split_patterns(files, "train") == ("a.tsv",)
    assert upstream.split_patterns(files, "test") == ("b.tsv", "c.tsv")
    assert upstream.split_patterns(files, "other") == ()
    assert upstream.function_of(source()) is numbers
    assert upstream.declared_sizes(source(num_input_examples={"train": 3})) == {"train": 3}


@canary("seqio")
def test_tfds_sources_tell_their_splits_and_builders(tmp_path: Path) -> None:
    found = seqio.TfdsDataSource("mnist:3.0.1", splits={"train": "train[:90%]"}, tfds_data_dir=str(tmp_path))
    assert list(upstream.tfds_splits(found)) == ["train"]
    assert upstream.tfds_instructions(found) == ["train[:90%]"]
    assert upstream.builder_kwargs(found.tfds_dataset) == {}
    assert upstream.builder_of(found.tfds_dataset, "train").name == "mnist"


@canary("seqio")
def test_the_splits_of_a_loader_are_replaced() -> None:
    splits = {"train": seqio.utils.TfdsSplit("mnist:3.0.1", "train", None)}
    found = seqio.TfdsDataSource(splits={"train": seqio.utils.TfdsSplit("mnist:3.0.1", "test", None)})
    upstream.replace_splits(found.tfds_dataset, splits)
    assert found.tfds_dataset.tfds_splits == splits
    assert upstream.tfds_instructions(found) == ["train"]


@canary("seqio")
def test_seqio_opens_the_file_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seqio.vocabularies, "_load_model", lambda file, extra_ids, **options: (file, extra_ids))
    upstream.open_vocabulary_files(lambda path, extra_ids: f"first-{path}")
    upstream.open_vocabulary_files(lambda path, extra_ids: f"{path}-{extra_ids}")
    assert seqio.vocabularies._load_model("x.model", 3) == ("x.model-3", 3)


@canary("seqio")
def test_registrations_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = seqio.dataset_providers.DatasetProviderRegistry
    monkeypatch.setattr(registry, "add_provider", registry.__dict__["add_provider"])
    monkeypatch.setattr(seqio.TaskRegistry, "_REGISTRY", {})
    seen: list[tuple[str, bool]] = []

    def on_register(name: str, _frame: FrameType, register: Any) -> None:
        register()
        seen.append((name, name in seqio.TaskRegistry.names()))

    upstream.watch_registrations(on_register)
    seqio.TaskRegistry.add("canary", source(), FEATURES)
    assert seen == [("canary", True)]


@canary("seqio")
def test_a_cache_is_read_before_it_is_complete_and_looked_for_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "canary"
    folder.mkdir()
    features = {"targets": {"shape": [None], "dtype": "int32"}}
    info = {"num_shards": 1, "features": features, "seqio_version": seqio.__version__}
    (folder / "info.train.json").write_text(json.dumps(info))
    (folder / "stats.train.json").write_text('{"examples": 1}')
    with tf.io.TFRecordWriter(f"{folder}/train.tfrecord-00000-of-00001") as writer:
        writer.write(seqio.dict_to_tfexample({"targets": tf.constant([7])}).SerializeToString())
    (example,) = upstream.cached_source(str(folder), "train").get_dataset("train", shuffle=False)
    assert example["targets"].numpy().tolist() == [7]

    monkeypatch.setattr(seqio.utils, "_GLOBAL_CACHE_DIRECTORIES", [str(tmp_path)])
    made = seqio.Task("canary", source(), FEATURES, preprocessors=(seqio.CacheDatasetPlaceholder(),))
    (folder / "COMPLETED").touch()
    assert made.get_cached_stats("train") == {"examples": 1}
    (folder / "stats.train.json").write_text('{"examples": 2}')
    upstream.forget_cache(made)
    assert made.get_cached_stats("train") == {"examples": 2}
