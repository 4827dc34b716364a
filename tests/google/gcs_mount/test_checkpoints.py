"""Checkpoints at /gcs: a folder saves and restores them; the mode fuse restores them, but refuses to save."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from t5x_harness.google.gcs_mount.mount import MountMode
from t5x_harness.google.gcs_mount.probing import command_prefix, refusal
from t5x_harness.sample_tasks import CONFIGS

# Does what a job does with checkpoints, in both of T5X's formats, and prints the outcome.
JOB = """
import json, os, sys
import numpy as np, orbax.checkpoint as ocp, tensorflow as tf, tensorstore as ts
gcs, restored_from = sys.argv[1:]
state = {"step": np.int32(7), "params": {"kernel": np.arange(12.0).reshape(3, 4)}}
result = {}
def attempt(name, function):
    try:
        result[name] = function()
    except Exception as error:
        result[name] = f"{type(error).__name__}: {error}"
def save():
    ocp.PyTreeCheckpointer().save(f"{gcs}/orbax/checkpoint_7", state)
    return sorted(os.listdir(f"{gcs}/orbax"))
def restore():
    found = ocp.PyTreeCheckpointer().restore(restored_from)
    return [int(found["step"]), np.asarray(found["params"]["kernel"]).ravel().tolist()]
def save_as_t5x_did():
    tf.io.gfile.makedirs(f"{gcs}/old/checkpoint_7.tmp-1")
    with tf.io.gfile.GFile(f"{gcs}/old/checkpoint_7.tmp-1/checkpoint", "wb") as file:
        file.write(b"msgpack")
    tf.io.gfile.rename(f"{gcs}/old/checkpoint_7.tmp-1", f"{gcs}/old/checkpoint_7")
    return tf.io.gfile.listdir(f"{gcs}/old")
def ocdbt():
    spec = {"driver": "ocdbt", "base": f"file://{gcs}/ocdbt/"}
    store = ts.KvStore.open(spec).result()
    for key in "abc":
        store.write(key, key * 3).result()
    again = ts.KvStore.open(spec).result()
    return [again.read(key).result().value.decode() for key in sorted(k.decode() for k in again.list().result())]
for name, function in (("save", save), ("restore", restore), ("old", save_as_t5x_did), ("ocdbt", ocdbt)):
    attempt(name, function)
print(json.dumps(result))
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An orbax checkpoint that another process has saved."""
    folder = tmp_path_factory.mktemp("saved")
    save = (
        "import sys, numpy as np, orbax.checkpoint as ocp\n"
        "state = {'step': np.int32(7), 'params': {'kernel': np.arange(12.0).reshape(3, 4)}}\n"
        "ocp.PyTreeCheckpointer().save(sys.argv[1], state)"
    )
    subprocess.run([sys.executable, "-P", "-c", save, folder / "checkpoint_7"], check=True, capture_output=True)
    return folder / "checkpoint_7"


@pytest.mark.journey
def test_checkpoints(mode: MountMode, root: Path, bucket: Path, checkpoint: Path) -> None:
    shutil.copytree(checkpoint, bucket / "theirs" / "checkpoint_7")
    gcs = "/gcs/my-bucket"
    done = subprocess.run(
        [*command_prefix(root, mode), sys.executable, "-P", "-c", JOB, gcs, f"{gcs}/theirs/checkpoint_7"],
        check=False, capture_output=True, text=True, timeout=240,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["restore"] == [7, [float(n) for n in range(12)]]
    assert found["ocdbt"] == ["aaa", "bbb", "ccc"]
    if mode is MountMode.FOLDER:
        assert (found["save"], found["old"]) == (["checkpoint_7"], ["checkpoint_7"])
        return
    assert found["save"].startswith(f"OSError: [Errno 24] Too many open files: '{gcs}/orbax/checkpoint_7.")
    assert found["old"] == f"ResourceExhaustedError: {gcs}/old/checkpoint_7.tmp-1; Too many open files"
    assert not (bucket / "orbax" / "checkpoint_7").exists()


# Runs a command as on a machine that allows no namespaces, such as most containers.
WITHOUT_NAMESPACES = (
    "unshare", "--user", "--map-root-user", "sh", "-c",
    'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin "$@"',
    "sh",
)  # fmt: skip


@pytest.mark.journey
def test_a_run_saves_and_restores_where_nothing_can_be_mounted(pytester: pytest.Pytester) -> None:
    pytest.importorskip("httptools", reason="the extra google is not installed")
    refused = [*WITHOUT_NAMESPACES, "unshare", "--user", "true"]
    if (
        shutil.which("unshare") is None
        or "No space left" not in subprocess.run(refused, capture_output=True, text=True, check=False).stderr
    ):
        pytest.skip("no machine without namespaces can be made here")
    (pytester.path / "models").symlink_to(CONFIGS / "models")
    text = (CONFIGS / "finetune_answer.gin").read_text()
    pytester.path.joinpath("train.gin").write_text(f"{text}\nMODEL_DIR = '/gcs/t5x-harness-test/run'\n")
    arguments = ("-p", "no:cacheprovider", "--t5x-runtime=embedded", "train.gin")
    result = pytester.run(*WITHOUT_NAMESPACES, sys.executable, "-m", "pytest", *arguments)
    result.assert_outcomes(passed=6)
    assert not os.path.exists("/gcs/t5x-harness-test")


@pytest.mark.usefixtures("imported")
@pytest.mark.journey
def test_a_run_that_saves_through_fuse_is_told(pytester: pytest.Pytester) -> None:
    pytest.importorskip("httptools", reason="the extra google is not installed")
    if refused := refusal(MountMode.FUSE):
        pytest.skip(f"/gcs cannot be as Cloud Storage FUSE here: {refused}")
    (pytester.path / "models").symlink_to(CONFIGS / "models")
    text = (CONFIGS / "finetune_answer.gin").read_text()
    pytester.path.joinpath("train.gin").write_text(f"{text}\nMODEL_DIR = '/gcs/my-bucket/run'\n")
    arguments = ("-p", "no:cacheprovider", "--t5x-runtime=embedded", "--t5x-gcs=fuse", "train.gin::train")
    result = pytester.runpytest_subprocess(*arguments)
    result.assert_outcomes(failed=1)
    shown = " ".join(result.stdout.str().split())
    assert (
        "error CKP12: the checkpoint cannot be finished: Cloud Storage FUSE renames no folder that holds anything, "
        "here /gcs/my-bucket/run/checkpoint_"
    ) in shown
    assert "fix: write gs://my-bucket/run in the place of /gcs/my-bucket/run" in shown
