"""If nothing can be mounted, paths in texts are rewritten, and Python's functions and two libraries are patched."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from t5x_harness.google.gcs_mount.probing import rewrite


def patched(code: str, root: Path) -> Any:
    """Runs code in a process that may not enter a namespace, because it has two threads."""
    program = f"""
import json, os, threading
ended = threading.Event()
threading.Thread(target=ended.wait, daemon=True).start()
from t5x_harness.google.gcs_mount.mount import enter
enter({str(root)!r})
{code}
ended.set()
print(json.dumps([os.environ["T5X_HARNESS_GCS_PATCH"], result]))
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        check=False, capture_output=True, text=True, timeout=240, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    patched_for, result = json.loads(done.stdout.splitlines()[-1])
    assert patched_for == str(root)
    return result


def test_python_finds_the_store(root: Path, bucket: Path) -> None:
    code = """
import glob, pathlib, shutil
gcs = pathlib.Path("/gcs/my-bucket")
result = [open("/gcs/my-bucket/data/hello.txt").read(), open(b"/gcs/my-bucket/data/hello.txt").read(),
          (gcs / "data" / "hello.txt").read_text(), os.listdir("/gcs"), glob.glob("/gcs/*/data/*"), os.path.isdir(gcs)]
os.makedirs(gcs / "a" / "b")
shutil.copytree(gcs / "data", gcs / "a" / "b" / "c")
os.rename(gcs / "a" / "b" / "c" / "hello.txt", gcs / "moved")
shutil.rmtree(gcs / "a")
result += [sorted(os.listdir(gcs)), open(file=gcs / "moved").read(), open("/etc/passwd").read() != ""]
"""
    hello = "/gcs/my-bucket/data/hello.txt"
    expected = ["hello", "hello", "hello", ["my-bucket"], [hello], True, ["data", "moved"], "hello", True]
    assert patched(code, root) == expected
    assert (bucket / "moved").read_text() == "hello"


def test_python_programs_that_a_patched_process_starts_find_it_too(root: Path) -> None:
    code = """
import pathlib, subprocess, sys
import t5x_harness
program = "print(open('/gcs/my-bucket/data/hello.txt').read())"
env = {**os.environ, "PYTHONPATH": str(pathlib.Path(t5x_harness.__file__).parent / "bootstrap")}
result = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True).stdout
"""
    assert patched(code, root) == "hello\n"


def test_fuse_is_not_to_be_had_by_patching(root: Path) -> None:
    code = f"""
from t5x_harness.google.gcs_mount.namespace import NamespaceRefused
try:
    enter({str(root)!r}, "fuse")
except NamespaceRefused as refused:
    result = str(refused)
"""
    assert patched(code, root) == (
        "/gcs cannot be as Cloud Storage FUSE here: this process has 2 threads, and only a process of one can enter; "
        "see t5x-harness doctor, or choose --gcs=folder"
    )


def test_a_later_call_names_another_store(root: Path, tmp_path: Path) -> None:
    (tmp_path / "other" / "buckets" / "b").mkdir(parents=True)
    code = f"from t5x_harness.google.gcs_mount.patching import patch; patch({str(tmp_path / 'other')!r}); " + (
        "result = os.listdir('/gcs')"
    )
    assert patched(code, root) == ["b"]


def test_libraries_find_the_store(root: Path, bucket: Path) -> None:
    code = """
import numpy as np, tensorflow as tf, tensorstore as ts
from etils import epath
gcs = "/gcs/my-bucket/"
with tf.io.gfile.GFile(gcs + "gfile", "w") as file:
    file.write("gfile")
array = ts.open({"driver": "zarr", "kvstore": {"driver": "file", "path": gcs + "zarr/"}}, create=True,
                dtype=ts.int32, shape=[3]).result()
array[...] = [1, 2, 3]
np.save(gcs + "array.npy", np.arange(3))
with tf.io.TFRecordWriter(gcs + "records") as writer:
    writer.write(b"one")
records = [gcs + "records"]
with tf.summary.create_file_writer(gcs + "events").as_default():
    tf.summary.scalar("loss", 1.0, step=0)
again = ts.Spec({"driver": "zarr", "kvstore": {"driver": "file", "path": gcs + "zarr/"}})
result = [tf.io.gfile.exists(gcs + "gfile"), len(tf.io.gfile.glob(gcs + "gf*")), sorted(tf.io.gfile.listdir(gcs)),
          ts.open(again).result()[...].read().result().tolist(), np.load(gcs + "array.npy", mmap_mode="r").tolist(),
          sorted(key.decode() for key in ts.KvStore.open(f"file://{gcs}zarr/").result().list().result()),
          (epath.Path(gcs) / "data" / "hello.txt").read_text(),
          [r.decode() for name in (records, np.array(records), tf.constant(records), records[0])
           for r in tf.data.TFRecordDataset(name).as_numpy_iterator()],
          [r.decode() for r in tf.data.TextLineDataset(gcs + "data/hello.txt").as_numpy_iterator()],
          [r.decode() for r in tf.data.Dataset.list_files(gcs + "rec*").interleave(tf.data.TFRecordDataset)
           .as_numpy_iterator()],
          tf.io.read_file(gcs + "data/hello.txt").numpy().decode(), len(os.listdir(gcs + "events")),
          tf.data.TFRecordDataset(tf.data.Dataset.from_tensor_slices([b"/etc/no"])).element_spec.dtype.name]
"""
    listed = ["array.npy", "data", "events", "gfile", "records", "zarr"]
    arrays = [[1, 2, 3], [0, 1, 2], [".zarray", "0"]]
    read = [["one"] * 4, ["hello"], ["one"], "hello", 1, "string"]
    assert patched(code, root) == [True, 1, listed, *arrays, "hello", *read]
    assert (bucket / "gfile").read_text() == "gfile"


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("/gcs/b/x", "/s/buckets/b/x"),
        ("/gcs", "/s/buckets"),
        ("/gcs/", "/s/buckets/"),
        ("--model_dir=/gcs/b/m", "--model_dir=/s/buckets/b/m"),
        ("--gin.MODEL_DIR='/gcs/b/m'", "--gin.MODEL_DIR='/s/buckets/b/m'"),
        ("/gcs/b/one:/gcs/b/two,/gcs/b/three", "/s/buckets/b/one:/s/buckets/b/two,/s/buckets/b/three"),
        ("file:///gcs/b/x", "file:///s/buckets/b/x"),
        ("cat </gcs/b/x >/gcs/b/y", "cat </s/buckets/b/x >/s/buckets/b/y"),
        ("PATHS = ['/gcs/b', \"/gcs/c\"]\n# /gcs\n", "PATHS = ['/s/buckets/b', \"/s/buckets/c\"]\n# /s/buckets\n"),
        ("{'dir': ('/gcs/b', 1)}", "{'dir': ('/s/buckets/b', 1)}"),
    ],
)
def test_paths_are_rewritten(text: str, rewritten: str) -> None:
    assert rewrite(text, "/s") == rewritten


@pytest.mark.parametrize(
    "text",
    [
        "gs://b/gcs/x", "/mnt/gcs/b", "~/gcs/b", "./gcs/b", "$HOME/gcs", "{root}/gcs/b", "https://host/gcs/b",
        "/gcsfuse/b", "/gcs-backup/b", "/gcs.old", "gcs/b", "/GCS/b", "",
    ],
)  # fmt: skip
def test_other_paths_stay(text: str) -> None:
    assert rewrite(text, "/s") == text


def test_a_root_with_odd_characters_is_taken_as_it_is() -> None:
    assert rewrite("/gcs/b", r"/a\1 b") == r"/a\1 b/buckets/b"
