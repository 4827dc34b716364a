"""Each exception in the table is really raised, and reported as the right finding."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gin
import jax
import numpy as np
import pytest
import seqio
import tensorflow as tf
from t5x import eval as eval_module
from t5x import infer, trainer, utils
from tasks_in_text import raised

from t5x_harness.resolve.exceptions import causes, error_text, one_line
from t5x_harness.resolve.explanation import explain
from t5x_harness.resolve.known_errors import KNOWN_ERRORS, reword
from t5x_harness.rulebook.codes import RUN_CODES
from t5x_harness.rulebook.rules import all_codes
from t5x_harness.spec import Stage
from t5x_harness.symptoms.table import symptom_codes

BYTES = seqio.Feature(seqio.ByteVocabulary())
PAIR = {"inputs": BYTES, "targets": BYTES}
LENGTHS = {"inputs": 8, "targets": 8}
DYNAMIC = "from __gin__ import dynamic_registration\n"


def reworded(error: Exception) -> tuple[str, str, str]:
    known = reword([str(link) for link in causes(error)])
    assert known is not None, error
    return known.code, known.message, known.fix


@pytest.fixture(autouse=True)
def own_gin() -> Iterator[None]:
    gin.clear_config()
    yield
    gin.clear_config()


@pytest.fixture
def register() -> Iterator[Callable[..., seqio.Task]]:
    """Registers tasks for one test, with SeqIO's own registry."""
    names = []

    def add(name: str, **changes: Any) -> seqio.Task:
        parts: dict[str, Any] = {
            "source": seqio.FunctionDataSource(texts, splits=("train",)),
            "preprocessors": [seqio.preprocessors.tokenize],
            "output_features": PAIR,
        }
        names.append(name)
        return seqio.TaskRegistry.add(name, **{**parts, **changes})

    yield add
    for name in names:
        seqio.TaskRegistry.remove(name)


def texts(split: str, shuffle_files: bool = False, seed: int | None = None) -> tf.data.Dataset:
    assert (split, shuffle_files, seed) == ("train", False, None)
    return tf.data.Dataset.from_tensor_slices({"inputs": ["one"], "targets": ["1"]})


@pytest.mark.parametrize(
    ("config", "code", "message"),
    [
        (
            f"{DYNAMIC}import seqio.utils\nseqio.utils.DatasetConfg.x = 1",
            "GIN14",
            "seqio.utils.DatasetConfg does not exist: its module has no DatasetConfg",
        ),
        (
            f"{DYNAMIC}import __main__ as eval_script\neval_script.evaluates.x = 1",
            "GIN12",
            "eval_script.evaluates is not part of the binary that this mode starts: it has no evaluates",
        ),
        (f"{DYNAMIC}adafactor.Adafactor.x = 1", "GIN29", "adafactor is used and this file does not import it"),
        (
            f"{DYNAMIC}import seqio\nseqio.ByteVocabulary.extras = 1",
            "GIN13",
            "seqio.ByteVocabulary has no parameter extras",
        ),
        ("import no_such_module", "GIN15", "module no_such_module cannot be imported"),
        ("include 'no_such.gin'", "GIN16", "the Gin file no_such.gin is in none of ['']"),
        ("include 'gs://bucket/x.gin'", "GIN33", "Gin cannot open gs://bucket/x.gin, nor anything else at gs://"),
        ("no_such_function.x = 1", "GIN10", "nothing that can be configured is called no_such_function"),
        ("X = @no_such_function()", "GIN10", "nothing that can be configured is called no_such_function"),
        ("TRAIN_STEPS = %gin.REQUIRED", "GIN03", "a required value is missing: TRAIN_STEPS"),
        (
            f"{DYNAMIC}import seqio\nseqio.ByteVocabulary.extra_ids = %EXTRA",
            "GIN18",
            "%EXTRA is used and nothing gives it a value",
        ),
    ],
)
def test_what_gin_raises(config: str, code: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", eval_module)

    def parse() -> None:
        gin.parse_config(config)
        gin.finalize()

    error = raised(parse)
    assert reworded(error)[:2] == (code, message)
    assert "\n" not in one_line(error)


def test_a_required_parameter_of_a_call() -> None:
    @gin.configurable(module="known_errors")
    def needs(value: int = gin.REQUIRED) -> int:
        return value

    assert reworded(raised(needs))[:2] == ("GIN03", "a required value is missing: needs ['value']")


def test_a_module_that_registers_after_the_config_was_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "late_configurables.py").write_text("import gin\n\n@gin.configurable\ndef late():\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    gin.finalize()
    assert reworded(raised(lambda: utils.import_module("late_configurables"))) == (
        "GIN22",
        "the module named by MIXTURE_OR_TASK_MODULE registers Gin configurables after the config was parsed",
        "import the module in the Gin file and set MIXTURE_OR_TASK_MODULE = None",
    )


@pytest.mark.parametrize(
    ("changes", "use_cached", "code", "message"),
    [
        ({"preprocessors": [seqio.CacheDatasetPlaceholder()]}, True, "SEQ01", "the cached examples of broken are in "),
        (
            {"preprocessors": [seqio.CacheDatasetPlaceholder(required=True)]},
            False,
            "SEQ03",
            "task broken can only be read from a cache, and use_cached is False",
        ),
        (
            {"output_features": {**PAIR, "answers": BYTES}},
            False,
            "SEQ06",
            "the preprocessors leave no feature answers, which the task declares as an output feature",
        ),
        (
            {"preprocessors": []},
            False,
            "SEQ37",
            "feature inputs is text after preprocessing, and its seqio.Feature declares int32",
        ),
        (
            {"source": seqio.TextLineDataSource({"train": "/nowhere/of/*.tsv"})},
            False,
            "SEQ34",
            "no file matches /nowhere/of/*.tsv",
        ),
    ],
)
def test_what_seqio_raises_when_it_reads(
    register: Callable[..., seqio.Task], changes: dict[str, Any], use_cached: bool, code: str, message: str
) -> None:
    task = register("broken", **changes)
    error = raised(lambda: task.get_dataset(LENGTHS, split="train", use_cached=use_cached, shuffle=False))
    assert reworded(error)[0] == code
    assert reworded(error)[1].startswith(message)


def test_what_seqio_raises_of_names(register: Callable[..., seqio.Task]) -> None:
    assert reworded(raised(lambda: seqio.get_mixture_or_task("contuing")))[:2] == (
        "SEQ04",
        "no task or mixture is called contuing",
    )
    register("twice")
    assert reworded(raised(lambda: seqio.TaskRegistry.add_provider("twice", seqio.TaskRegistry.get("twice"))))[:2] == (
        "SEQ05",
        "twice is registered twice",
    )


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ({"inputs": 8}, "task_feature_lengths has no length for {'targets'}"),
        (
            {**LENGTHS, "extra": 8},
            "task_feature_lengths has a length for {'extra'}, which is not a feature of the task",
        ),
    ],
)
def test_what_a_feature_converter_raises(lengths: dict[str, int], message: str) -> None:
    ids = tf.data.Dataset.from_tensors({"inputs": tf.zeros([3], tf.int32), "targets": tf.zeros([3], tf.int32)})
    converter = seqio.EncDecFeatureConverter(pack=False)
    assert reworded(raised(lambda: converter(ids, lengths)))[:2] == ("SEQ15", message)


def test_what_the_evaluator_raises(register: Callable[..., seqio.Task]) -> None:
    def needs_lengths(dataset: tf.data.Dataset, sequence_length: Any) -> tf.data.Dataset:
        return dataset.take(sequence_length["inputs"])

    swapped = lambda predictions, targets: {}  # noqa: E731
    register("cuts", preprocessors=[needs_lengths], metric_fns=[lambda targets, predictions: {}])
    evaluate = lambda: seqio.Evaluator("cuts", seqio.EncDecFeatureConverter(pack=False), eval_split="train")  # noqa: E731
    assert reworded(raised(evaluate))[:2] == (
        "SEQ30",
        "preprocessor needs_lengths of task cuts needs the feature lengths, and they are None here",
    )
    task = register("swapped", metric_fns=[swapped])
    assert reworded(raised(lambda: task.metric_objs))[:2] == (
        "SEQ23",
        "a metric function has the positional arguments ('predictions', 'targets'), from which SeqIO cannot tell what "
        "to call it with",
    )


def test_what_a_logger_of_the_users_own_raises(register: Callable[..., seqio.Task], tmp_path: Path) -> None:
    class Log(seqio.Logger):
        def __call__(self, **_: Any) -> None:
            raise FileNotFoundError("nowhere to write")

    def pair(split: str, shuffle_files: bool, seed: int | None = None) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensors({"inputs": "ab", "targets": "c"})

    source = seqio.FunctionDataSource(pair, splits=("train",))
    register("logged", source=source, metric_fns=[lambda targets, predictions: {"count": len(predictions)}])
    evaluator = seqio.Evaluator(
        "logged", seqio.EncDecFeatureConverter(pack=False), eval_split="train", logger_cls=[Log], log_dir=str(tmp_path)
    )

    def evaluate() -> None:
        def predict(dataset: tf.data.Dataset) -> list[tuple[int, list[int]]]:
            return [(index, [1]) for index, _ in enumerate(dataset)]

        evaluator.evaluate(compute_metrics=True, step=0, predict_fn=predict, score_fn=predict)[0].result()

    finding = explain(raised(evaluate), Stage.EVAL, None)
    assert finding.code == "INF12"
    assert finding.message.startswith("the metrics of task logged cannot be written: ")
    assert finding.message.endswith(" raised FileNotFoundError: nowhere to write"), finding.message
    assert finding.fix == "correct Log, or what it is given"


def test_too_few_files_for_the_shards(tmp_path: Path) -> None:
    (tmp_path / "part.tsv").write_text("a\tb\n")
    source = seqio.TextLineDataSource({"train": str(tmp_path / "*.tsv")})
    error = raised(lambda: source.get_dataset("train", shard_info=seqio.ShardInfo(index=0, num_shards=4)))
    assert reworded(error)[:2] == ("SEQ28", "the data has 1 files, and 4 shards of it are asked for")


def test_a_mixture_whose_tasks_leave_different_features() -> None:
    pairs, text = (tf.data.Dataset.from_tensors({name: [1] for name in names}) for names in (PAIR, ["targets"]))
    code, message, fix = reworded(raised(lambda: tf.data.Dataset.sample_from_datasets([pairs, text])))
    assert code == "SEQ07"
    assert message.startswith(
        "the tasks of a mixture do not leave the same features: the first leaves 'inputs': Tensor"
    )
    assert ", and another one 'targets': TensorSpec(" in message
    assert fix == "let the preprocessors of each task leave the same features; what a task does not have can be empty"


def test_a_task_whose_source_has_no_splits(register: Callable[..., seqio.Task]) -> None:
    task = register("nothing", source=seqio.FunctionDataSource(texts, splits=()))
    assert reworded(raised(lambda: task.splits))[:2] == (
        "SEQ19",
        "task nothing has no splits, so that nothing of it can be read",
    )


def test_none_in_a_feature() -> None:
    with tf.Graph().as_default():
        error = raised(lambda: tf.constant(None))
    assert reworded(error)[:2] == (
        "SEQ37",
        "a preprocessor leaves None as the value of a feature, which TensorFlow does not have",
    )


def test_what_t5x_raises(register: Callable[..., seqio.Task]) -> None:
    register("good")
    dataset = utils.DatasetConfig("good", LENGTHS, split="train", batch_size=12, shuffle=False, seed=0)
    vocabularies = {"input_vocabulary": BYTES.vocabulary, "output_vocabulary": seqio.ByteVocabulary(3)}
    model: Any = type("Model", (), {**vocabularies, "loss_fn": lambda *_: 0.0})()
    state: Any = type("State", (), {"params": {}, "flax_mutables": None})()
    key = jax.random.PRNGKey(0)
    expected = {
        "MSH02": lambda: utils.get_dataset(dataset, 0, 8, seqio.EncDecFeatureConverter),
        "GIN26": lambda: utils.create_learning_rate_scheduler(factors="constant * rsqrt_dacay")(1),
        "SEQ09": lambda: utils.verify_matching_vocabs(dataset, model),
        "MSH11": lambda: trainer.accumulate_grads_microbatched(model, state, {"inputs": np.zeros((8, 4))}, key, 3),
    }
    assert {code: reworded(raised(function))[0] for code, function in expected.items()} == {c: c for c in expected}


@pytest.mark.embedded("T5X at cc342d4 stops with Python's IndexError in both, which names nothing")
def test_inference_that_left_nothing_to_write(tmp_path: Path) -> None:
    output = str(tmp_path / "x")
    chunks = lambda: infer.merge_chunks_to_file(str(tmp_path), "good-predict.jsonl", str(tmp_path), 1)  # noqa: E731
    write = lambda: infer.write_inferences_to_file(output, ([], {}), texts("train"), "generate", BYTES.vocabulary)  # noqa: E731
    assert [reworded(raised(function))[0] for function in (chunks, write)] == ["INF03", "INF04"]


# Messages of T5X's public repository at cc342d4, as seen in runs of it.
RECORDED = [
    ("Batch size (12) must be divisible by corresponding data mesh size (8).", "MSH02", "axis, 8"),
    ("Batch size (12) must be divisible by number of data shards (8).", "MSH02", "number of data shards, 8"),
    ("Batch size (12) must be divisible by number of shards (8).", "MSH02", "number of data shards, 8"),
    ("Batch size isn't divided evenly by num_microbatches.", "MSH11", "not divisible by num_microbatches"),
    (
        "Checkpoint period (1000), eval period (300), and GC period (0) must all be multiples of each other.",
        "MSH12",
        "checkpoint period 1000, eval period 300 and gc period 0 do not fit",
    ),
    (
        "[Errno 24] Too many open files: '/gcs/b/run/checkpoint_10.orbax-checkpoint-tmp/state.orbax-checkpoint-tmp' -> "
        "'/gcs/b/run/checkpoint_10.orbax-checkpoint-tmp/state'",
        "CKP12",
        "here /gcs/b/run/checkpoint_10.orbax-checkpoint-tmp/state.orbax-checkpoint-tmp",
    ),
    (
        'RESOURCE_EXHAUSTED: Error writing local file "/data/m/checkpoint_2/state/_sharding": Failed writing: '
        '"/data/m/checkpoint_2/state/_sharding.__lock": Failed to write 60883 bytes to file 17: No space left on '
        "device [os_error_code='28']",
        "RUN01",
        "no space left on the disk of /data/m/checkpoint_2/state/_sharding",
    ),
    ("[Errno 28] No space left on device: '/data/m/x.tmp'", "RUN01", "no space left on the disk of /data/m/x.tmp"),
    ("[Errno 122] Disk quota exceeded: '/data/m/x'", "RUN01", "on the disk of /data/m/x: Disk quota exceeded"),
    ("[Errno 30] Read-only file system: '/data/m'", "RUN01", "/data/m cannot be used: Read-only file system"),
    ("/data/m/train; Permission denied", "RUN01", "/data/m/train cannot be used: Permission denied"),
    (
        "Metadata file (named _METADATA) does not exist at gs://b/run/checkpoint_3/state.",
        "CKP31",
        "orbax takes gs://b/run/checkpoint_3 for unfinished, as it has no commit_success.txt",
    ),
    (
        "gs://b/run/checkpoint_3 is not a checkpoint: it has no folder 'state'. Steps in gs://b/run: [2]",
        "CKP31",
        "orbax removed gs://b/run/checkpoint_3 as unfinished, or its arrays while another job saved it",
    ),
    (
        "NOT_FOUND: Error reading gs://b/run/checkpoint_2/state/_sharding",
        "CKP32",
        "gs://b/run/checkpoint_2 was removed",
    ),
    (
        'NOT_FOUND: Error opening "zarr" driver: Error reading "target.scale/.zarray" in OCDBT database at '
        "gs://b/run/checkpoint_2/state/: Error reading Byte range [0, 549) of gs://b/run/checkpoint_2/state/d/8e "
        "[tensorstore_spec='{}']",
        "CKP32",
        "the checkpoint gs://b/run/checkpoint_2 has no state/d/8e: it was removed while it was restored, or copied",
    ),
    (
        "{{function_node __wrapped__SerializeIterator_device_/job:localhost/replica:0/task:0/device:CPU:0}} PyFunc is "
        "stateful. [Op:SerializeIterator] name: ",
        "RUN01",
        "the position in the data cannot be saved: a source of it is a Python function or generator",
    ),
    ("Found incomplete checkpoint at gs://b/x/checkpoint_3.", "CKP31", "orbax takes gs://b/x/checkpoint_3 for"),
    (
        'DATA_LOSS: Error opening "zarr" driver: Error reading "target.scale/.zarray" in OCDBT database at '
        "gs://b/run/checkpoint_3/state/: Error decoding gs://b/run/checkpoint_3/state/manifest.ocdbt: Error decoding "
        "manifest: Length in header (113) does not match actual length (56); at byte 12 [tensorstore_spec='{}']",
        "CKP27",
        "the checkpoint gs://b/run/checkpoint_3 is damaged: Error decoding manifest: Length in header",
    ),
    (
        'OUT_OF_RANGE: Error opening "zarr" driver: Error reading "enc.kernel/.zarray" in OCDBT database at local '
        'file "/m/checkpoint_3/state/": Error reading Byte range [0, 549) of local file "/m/checkpoint_3/state/d/89": '
        "Requested byte range [0, 549) is not valid for value of size 274 [tensorstore_spec='{}']",
        "CKP27",
        "the checkpoint /m/checkpoint_3 is damaged: Requested byte range [0, 549) is not valid for value",
    ),
    (
        'Error executing an HTTP request: HTTP response code 404 with body \'{"message": "No such object: '
        "b/run/checkpoint_3/state/_METADATA\"}'",
        "CKP32",
        "the checkpoint gs://b/run/checkpoint_3 was removed while it was restored",
    ),
    (
        "Failed to find any matching files for /m/checkpoint_2/dataset/process_1-of-2/train_ds-001-of-002",
        "CKP16",
        "/m/checkpoint_2 has no position in the data for host 1 of 2: other hosts saved it",
    ),
    (
        "EOF reached. Requested to read 62 bytes from 101206",
        "RUN01",
        "a saved position in the data cannot be read: its",
    ),
    (
        "The checkpoint has no state of the input pipeline: /m/checkpoint_2/dataset/train_ds-000-of-001 is missing. It",
        "CKP16",
        "/m/checkpoint_2 has no position in the data for host 0 of 1: other hosts saved it",
    ),
    ("/data/m/events.out; No space left on device", "RUN01", "no space left on the disk of /data/m/events.out"),
    ("/gcs/b/run/checkpoint_10.tmp-1700000000; Too many open files", "CKP12", "here /gcs/b/run/checkpoint_10.tmp-17"),
    ("Unexpected total_steps (20000) < checkpoint step  (1000000).", "CKP01", "TRAIN_STEPS is 20000, and"),
    (
        "The target dict keys and state dict keys do not match, target dict contains keys {'0'} which are not present "
        "in state dict at path ./state/param_states",
        "CKP07",
        "holds the state of another optimizer",
    ),
    ("Unknown factor rsqrt_dacay.", "GIN26", "has a factor rsqrt_dacay, which"),
    ("Model and Task vocabularies do not match:\n  task=x\n  ds_vocabs=(<a>, <b>)", "SEQ09", "differ"),
    (
        "No chunk results found! One possible explanation is that your input did not contain any examples",
        "INF03",
        "its input has no examples",
    ),
    (
        "`mode` must be one of 'predict', 'score' or 'predict_with_aux'. Got 'generate'",
        "INF04",
        "infer mode generate does not exist",
    ),
    (
        "'x' has no metrics for evaluation, or this mixture/task doesn't have provided split.",
        "SEQ19",
        "nothing of x can be evaluated",
    ),
    (
        "Your Task/Mixture module contains gin configurables that must be loaded before gin flag parsing. One fix is "
        "to add 'import tasks' in your gin file.",
        "GIN22",
        "registers Gin configurables after",
    ),
    # Messages of the embedded T5X, if only a whole job raises them.
    ("Batch size 12 is not a multiple of 8, the data parallelism of the mesh (mesh {})", "MSH02", "batch size 12 is"),
    ("train.total_steps (20) is less than the step of the checkpoint (100): it counts", "CKP01", "already at step 100"),
    (
        "eval_period (300) must be a multiple of the shortest period, period (200): set",
        "MSH12",
        "eval_period (300) and",
    ),
    (
        "Checkpoint gs://b/checkpoint_1 lacks 5 of the model's leaves:\n  state/param_states/0/count (it has x)",
        "CKP07",
        "holds the state of another optimizer",
    ),
    ("there is nothing to evaluate: 'x' has no metric_fns, or no split 'test'", "SEQ19", "nothing of x can"),
    (
        "infer.output_vocab_feature_name is 'answers', but task 'x' has the output features inputs, targets",
        "INF05",
        "task x has no output feature answers, whose vocabulary is to decode the predictions; it has inputs, targets",
    ),
]


@pytest.mark.parametrize(("text", "code", "message"), RECORDED)
def test_what_jobs_raise(text: str, code: str, message: str) -> None:
    known = reword([text])
    assert known.code == code
    assert message in known.message
    assert "{" not in known.fix


def test_a_text_that_is_not_known_is_left_alone() -> None:
    assert reword(["out of cheese", ""]) is None


def test_orbax_at_gs_without_its_client() -> None:
    assert reworded(ImportError("cannot import name 'storage' from 'google.cloud' (unknown location)")) == (
        "RUN10",
        "orbax looks for checkpoints at gs:// with google-cloud-storage, which is not installed",
        "python -m pip install google-cloud-storage, in the image of the job, too",
    )


def test_every_code_of_the_table_has_a_page() -> None:
    assert {known.code for known in KNOWN_ERRORS} <= {*all_codes(), *RUN_CODES, *symptom_codes()}


def test_what_a_generator_raises_is_reported_without_tensorflows_wrapping() -> None:
    def rows():
        yield from {"train": ["a"]}["validation"]

    dataset = tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec((), tf.string))
    assert error_text(raised(lambda: list(dataset))) == "KeyError: 'validation'"
    assert error_text(ValueError("two\nlines")) == "ValueError: two lines"
