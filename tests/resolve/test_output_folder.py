"""Files that earlier jobs left in a job's output folder are reported before the job starts."""

from tasks_in_text import Resolve

from t5x_harness.findings.rule import FILES, inferred, trained
from t5x_harness.spec import Finding, Severity, StageResult

DONE = {"out/counting-predict.jsonl-00000-of-00001.COMPLETED": ""}
TMP = {"out/tmp-counting-00000-of-00001/input.ckpt.index": ""}


def inferred_to_out(*lines: str) -> str:
    return inferred("utils.DatasetConfig.split = 'validation'", "INFER_OUTPUT_DIR = 'out'", *lines)


def warnings(result: StageResult, *codes: str) -> list[Finding]:
    assert not result.errors
    return [f for f in result.findings if f.code in codes]


def test_checkpoints_of_an_earlier_run(resolve: Resolve) -> None:
    gin = trained("MODEL_DIR = 'model'", "RESULTS = 'other'")
    left = {"model/checkpoint_500/x": "", "model/checkpoint_1000/x": "", "model/checkpoint_1500.tmp-17/x": ""}
    found = warnings(resolve(gin, {**FILES, **left}), "CKP03", "CKP13")
    assert [(f.code, f.message, f.binding) for f in found] == [
        (
            "CKP03",
            "model holds checkpoint_1000 and 1 earlier: T5X goes on from there and reads no other checkpoint (here the "
            "run gets a folder of its own)",
            "MODEL_DIR",
        ),
        (
            "CKP13",
            "model holds checkpoint_1500.tmp-17, a checkpoint that is half written: another job is saving there, or "
            "died of it",
            "MODEL_DIR",
        ),
    ]
    assert {f.severity for f in found} == {Severity.WARNING}


def test_a_folder_in_a_bucket_is_not_called_empty(resolve: Resolve) -> None:
    for gin, holds in (
        (trained("MODEL_DIR = 'gs://my-bucket/out'"), "checkpoints"),
        (inferred_to_out("INFER_OUTPUT_DIR = 'gs://my-bucket/out'"), "finished or interrupted inference"),
    ):
        doubt = f"whether gs://my-bucket/out holds {holds} of an earlier job: it cannot be read here"
        assert doubt in resolve(gin, FILES).not_checked


def test_inference_that_is_done(resolve: Resolve) -> None:
    (found,) = warnings(resolve(inferred_to_out(), {**FILES, **DONE}), "INF01")
    assert found.message == (
        "out holds counting-predict.jsonl-00000-of-00001.COMPLETED: T5X skips counting and leaves the predictions of "
        "an earlier job"
    )
    assert found.fix == "use a new folder, or remove the .COMPLETED files"


def test_inference_that_is_done_otherwise(resolve: Resolve) -> None:
    """Another mode or shard writes a different file."""
    for line in ("infer_script.infer.mode = 'score'", "infer_script.infer.num_shards = 2"):
        assert not warnings(resolve(inferred_to_out(line), {**FILES, **DONE}), "INF01")


def test_inference_that_goes_on_with_other_data(resolve: Resolve) -> None:
    earlier = {
        "out/config.gin": inferred_to_out("utils.DatasetConfig.batch_size = 8", "CHECKPOINT_PATH = 'a/checkpoint_1'")
    }
    gin = inferred_to_out("CHECKPOINT_PATH = 'a/checkpoint_2'")
    (found,) = warnings(resolve(gin, {**FILES, **TMP, **earlier}), "INF06")
    assert found.message.startswith("out holds an interrupted inference of counting, which T5X goes on with, though ")
    assert "DatasetConfig.batch_size was 8 and is 32" in found.message
    assert "RestoreCheckpointConfig.path was 'a/checkpoint_1' and is 'a/checkpoint_2'" in found.message


def test_inference_that_goes_on_as_it_was(resolve: Resolve) -> None:
    earlier = {"out/config.gin": inferred_to_out()}
    assert not warnings(resolve(inferred_to_out(), {**FILES, **TMP, **earlier}), "INF06")
    assert not warnings(resolve(inferred_to_out(), {**FILES, **TMP}), "INF06")


def test_shards_without_examples(resolve: Resolve) -> None:
    four = "infer_script.infer.num_shards = 4"
    (found,) = warnings(resolve(inferred_to_out(four), FILES), "INF03")
    assert found.message == (
        "task counting has 2 examples in split 'validation', and 4 shards are inferred: some are empty"
    )
    (error,) = resolve(inferred_to_out(four, "infer_script.infer.shard_id = 3"), FILES).errors
    assert error.code == "INF03"
    assert error.message.endswith("shard 3, this one, is empty")
    assert error.fix == "set num_shards to at most 2"
