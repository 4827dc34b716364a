"""TensorFlow, whose storage addresses are compiled in, through the proxy and TLS."""

from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_gfile(tensors: Any, gcs_bucket: str, read_back: Callable[..., None]) -> None:
    told = tensors(
        """
        g, at = tf.io.gfile, f"gs://{bucket}"
        with g.GFile(f"{at}/folder/text", "w") as file:
            file.write("first line\\n")
            file.write("second \\N{SNOWMAN}")
        with g.GFile(f"{at}/folder/text", "a") as file:
            file.write("\\nthird")
        with g.GFile(f"{at}/folder/large", "wb") as file:
            file.write(b"0123456789" * 300_000)
        with g.GFile(f"{at}/folder/empty", "wb") as file:
            file.write(b"")
        g.makedirs(f"{at}/made/deep")
        g.copy(f"{at}/folder/text", f"{at}/copied")
        g.rename(f"{at}/copied", f"{at}/renamed")
        with g.GFile(f"{at}/folder/large", "rb") as file:
            file.seek(2_999_990)
            tail = file.read().decode()
        lines = list(g.GFile(f"{at}/folder/text"))
        stat = g.stat(f"{at}/folder/large")
        result = {
            "exists": [g.exists(f"{at}/{name}") for name in ("folder", "folder/text", "made/deep", "copied", "none")],
            "isdir": [g.isdir(f"{at}/{name}") for name in ("folder", "folder/text", "made/deep", "")],
            "listdir": sorted(g.listdir(f"{at}/folder")),
            "glob": sorted(g.glob(f"{at}/*/t*")),
            "walk": sorted(name for _, _, names in g.walk(at) for name in names),
            "size": [stat.length, stat.is_directory],
            "tail": tail,
            "lines": lines,
        }
        """,
        bucket=gcs_bucket,
    )
    assert told == {
        "exists": [True, True, True, False, False],
        "isdir": [True, False, True, True],
        "listdir": ["empty", "large", "text"],
        "glob": [f"gs://{gcs_bucket}/folder/text"],
        "walk": ["empty", "large", "renamed", "text"],
        "size": [3_000_000, False],
        "tail": "0123456789",
        "lines": ["first line\n", "second \N{SNOWMAN}\n", "third"],
    }
    text = "first line\nsecond \N{SNOWMAN}\nthird".encode()
    written = {"folder/text": text, "renamed": text, "folder/large": b"0123456789" * 300_000, "folder/empty": b""}
    read_back(gcs_bucket, written, by="tensorflow")
    left = tensors(
        """
        g.remove(f"{at}/renamed")
        g.rmtree(f"{at}/folder")
        result = [g.exists(f"{at}/folder/text"), sorted(g.listdir(at))]
        try:
            g.GFile(f"{at}/renamed").read()
        except tf.errors.NotFoundError:
            result.append("NotFoundError")
        """
    )
    assert left == [False, ["made/"], "NotFoundError"]


def test_what_others_replace_is_seen_at_once(tensors: Any, gcs_bucket: str, fake_gcs: Any) -> None:
    for body in ("one", "another", "3"):
        fake_gcs.put(gcs_bucket, {"x": body})
        told = tensors(
            'x = f"gs://{bucket}/x"; result = [tf.io.gfile.GFile(x).read(), tf.io.gfile.stat(x).length]',
            bucket=gcs_bucket,
        )
        assert told == [body, len(body)]


def test_records_and_data_sets(tensors: Any, gcs_bucket: str, fetch_folder: Callable[[str, str], Path]) -> None:
    told = tensors(
        """
        at = f"gs://{bucket}/records"
        rows = [bytes([i]) * (i * 977) for i in range(60)]
        for index in range(2):
            with tf.io.TFRecordWriter(f"{at}/plain-{index:05}-of-00002") as writer:
                for row in rows[index::2]:
                    writer.write(row)
        with tf.io.TFRecordWriter(f"{at}/packed", "GZIP") as writer:
            for row in rows:
                writer.write(row)
        files = tf.data.Dataset.list_files(f"{at}/plain-*", shuffle=False)
        read = files.interleave(tf.data.TFRecordDataset, cycle_length=2).as_numpy_iterator()
        packed = tf.data.TFRecordDataset(f"{at}/packed", "GZIP").as_numpy_iterator()
        with tf.io.gfile.GFile(f"{at}/lines", "w") as file:
            file.write("a\\nb\\n\\nc")
        tf.data.Dataset.range(5).save(f"{at}/saved")
        result = [
            list(read) == rows,
            list(packed) == rows,
            [line.decode() for line in tf.data.TextLineDataset(f"{at}/lines").as_numpy_iterator()],
            [int(i) for i in tf.data.Dataset.load(f"{at}/saved").as_numpy_iterator()],
        ]
        """,
        bucket=gcs_bucket,
    )
    assert told == [True, True, ["a", "b", "", "c"], [0, 1, 2, 3, 4]]
    folder = fetch_folder(gcs_bucket, "records")
    again = tensors(
        """
        read = [list(tf.data.TFRecordDataset(f"{folder}/plain-{i:05}-of-00002").as_numpy_iterator()) for i in range(2)]
        packed = tf.data.TFRecordDataset(f"{folder}/packed", "GZIP").as_numpy_iterator()
        saved = tf.data.Dataset.load(f"{folder}/saved").as_numpy_iterator()
        result = [read == [rows[0::2], rows[1::2]], list(packed) == rows, [int(i) for i in saved]]
        """,
        folder=str(folder),
    )
    assert again == [True, True, [0, 1, 2, 3, 4]]


def test_summaries(tensors: Any, gcs_bucket: str, fetch_folder: Callable[[str, str], Path]) -> None:
    read = """
        def scalars(folder):
            found = {}
            for path in tf.io.gfile.glob(f"{folder}/events.out.tfevents.*"):
                for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
                    event = tf.compat.v1.Event.FromString(record)
                    for value in event.summary.value:
                        found[f"{value.tag}@{event.step}"] = round(float(tf.make_ndarray(value.tensor)), 3)
            return found
        result = scalars(folder)
        """
    here = f"gs://{gcs_bucket}/logs/train"
    tensors(
        """
        with tf.summary.create_file_writer(here).as_default() as writer:
            for step in range(3):
                tf.summary.scalar("loss", 1.5 / (step + 1), step=step)
                writer.flush()  # each time, all of the file is uploaded anew
            tf.summary.scalar("accuracy", 0.25, step=3)
        """,
        here=here,
    )
    wanted = {"loss@0": 1.5, "loss@1": 0.75, "loss@2": 0.5, "accuracy@3": 0.25}
    assert tensors(read, folder=here) == wanted
    assert tensors(read, folder=str(fetch_folder(gcs_bucket, "logs/train"))) == wanted


def test_saved_models_and_checkpoints(tensors: Any, gcs_bucket: str, fetch_folder: Callable[[str, str], Path]) -> None:
    use = """
        loaded = tf.saved_model.load(f"{folder}/model")
        fresh = tf.train.Checkpoint(weight=tf.Variable(tf.zeros(4)))
        latest = tf.train.latest_checkpoint(f"{folder}/checkpoints")
        fresh.restore(latest).assert_consumed()
        result = [
            loaded(tf.constant([1.0, 2.0])).numpy().tolist(), latest.rpartition("/")[2], fresh.weight.numpy().tolist()
        ]
        """
    tensors(
        """
        class Scale(tf.Module):
            def __init__(self):
                self.factor = tf.Variable(3.0)

            @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
            def __call__(self, x):
                return x * self.factor

        tf.saved_model.save(Scale(), f"{folder}/model")
        manager = tf.train.CheckpointManager(
            tf.train.Checkpoint(weight=tf.Variable(tf.range(4.0))), f"{folder}/checkpoints", max_to_keep=2
        )
        for _ in range(3):
            manager.save()
        """,
        folder=f"gs://{gcs_bucket}/saved",
    )
    wanted = [[3.0, 6.0], "ckpt-3", [0.0, 1.0, 2.0, 3.0]]
    assert tensors(use, folder=f"gs://{gcs_bucket}/saved") == wanted
    folder = fetch_folder(gcs_bucket, "saved")
    assert sorted(path.name for path in folder.glob("checkpoints/*.index")) == ["ckpt-2.index", "ckpt-3.index"]
    # The file "checkpoint" has paths relative to its own folder, as TensorFlow wrote it.
    assert tensors(use, folder=str(folder)) == wanted
