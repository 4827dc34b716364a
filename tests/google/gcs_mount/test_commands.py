"""Commands see the store at /gcs, are unchanged in all other respects, and leave nothing behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import t5x_harness
from t5x_harness.google.gcs_mount import probing
from t5x_harness.google.gcs_mount.mount import MountMode
from t5x_harness.google.gcs_mount.namespace import NamespaceRefused
from t5x_harness.google.gcs_mount.probing import command_prefix, launched, refusal

Inside = Callable[..., Any]


def mounts() -> list[str]:
    return Path("/proc/self/mountinfo").read_text().splitlines()


@pytest.mark.parametrize("each", MountMode)
def test_a_mount_imports_only_what_it_has_without_site_packages(each: MountMode) -> None:
    """Otherwise each test here would be skipped, because the machine seems to refuse mounts."""
    assert "Error: No module named" not in (probing.refusal(each) or "")


def test_both_names_are_the_same_file(mode: MountMode, inside: Inside, bucket: Path) -> None:
    code = """
result = open("/gcs/my-bucket/data/hello.txt").read()
with open("/gcs/my-bucket/data/new.txt", "w") as file:
    file.write("from inside")
"""
    assert inside(code, mode=mode) == "hello"
    assert (bucket / "data" / "new.txt").read_text() == "from inside"


@pytest.mark.parametrize(
    "mode", [MountMode.FUSE, pytest.param(MountMode.FOLDER, marks=pytest.mark.journey)], indirect=True
)
def test_native_clients_and_children_see_it(mode: MountMode, inside: Inside, bucket: Path) -> None:
    code = """
import mmap, subprocess
import numpy as np, tensorflow as tf, tensorstore as ts
gcs = "/gcs/my-bucket/"
with tf.io.gfile.GFile(gcs + "gfile", "w") as file:
    file.write("gfile")
with tf.io.TFRecordWriter(gcs + "records") as writer:
    writer.write(b"one")
    writer.write(b"two")
array = ts.open({"driver": "zarr", "kvstore": {"driver": "file", "path": gcs + "zarr/"}}, create=True,
                dtype=ts.int32, shape=[3]).result()
array[...] = [1, 2, 3]
with open(gcs + "mapped", "w+b") as file:
    file.truncate(4096)
    with mmap.mmap(file.fileno(), 4096) as view:
        view[:6] = b"mapped"
result = {
    "records": [r.decode() for r in tf.data.TFRecordDataset(gcs + "records").as_numpy_iterator()],
    "glob": tf.io.gfile.glob(gcs + "r*"),
    "zarr": ts.open({"driver": "zarr", "kvstore": f"file://{gcs}zarr/"}).result()[...].read().result().tolist(),
    "memmap": bytes(np.memmap(gcs + "mapped", mode="r")[:6]).decode(),
    "child": subprocess.run(["cat", gcs + "gfile"], capture_output=True, text=True).stdout,
}
"""
    assert inside(code, mode=mode, TF_CPP_MIN_LOG_LEVEL="3") == {
        "records": ["one", "two"],
        "glob": ["/gcs/my-bucket/records"],
        "zarr": [1, 2, 3],
        "memmap": "mapped",
        "child": "gfile",
    }
    assert (bucket / "gfile").read_text() == "gfile"
    assert (bucket / "mapped").read_bytes()[:6] == b"mapped"


def test_a_command_keeps_folder_user_words_and_status(mode: MountMode, root: Path, tmp_path: Path) -> None:
    code = "import os, sys; print(os.getcwd(), os.getuid(), os.getgid(), *sys.argv[1:]); sys.exit(7)"
    words = [*command_prefix(root, mode), sys.executable, "-c", code, "a b", "--c"]
    done = subprocess.run(words, check=False, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert (done.returncode, done.stdout) == (7, f"{tmp_path} {os.getuid()} {os.getgid()} a b --c\n")


def test_the_rest_of_the_machine_is_as_it_was(mode: MountMode, inside: Inside, tmp_path: Path) -> None:
    shown = inside("result = sorted(os.listdir('/'))", mode=mode)
    assert shown == sorted({*os.listdir("/"), "gcs"})
    inside(f"open({str(tmp_path / 'outside')!r}, 'w').write('kept')", mode=mode)
    assert (tmp_path / "outside").read_text() == "kept"


@pytest.mark.skipif(os.path.isdir("/gcs"), reason="this machine has a /gcs, so that the root stays what it is")
def test_a_folder_at_the_root_cannot_be_made_and_lost(mode: MountMode, inside: Inside) -> None:
    code = """
try:
    os.mkdir("/t5x-harness-test")
except OSError as error:
    result = error.strerror
"""
    assert inside(code, mode=mode) == "Read-only file system"


def files_in(root: Path) -> list[Path]:
    """Lists the files of a store, not the empty folders that a mount makes and leaves in the store."""
    return sorted(path for path in root.rglob("*") if path.is_file())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_however_a_command_ends(mode: MountMode, root: Path, number: int) -> None:
    before, existed, files = mounts(), os.path.exists("/gcs"), files_in(root)
    code = "import time\nfile = open('/gcs/my-bucket/half', 'w')\nfile.write('x' * 100_000)\nprint(flush=True)\n"
    words = [*command_prefix(root, mode), sys.executable, "-c", f"{code}time.sleep(600)"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == b"\n"
    process.send_signal(number)
    # stderr ends only when the last process that holds it has ended, including that of the file system.
    process.communicate(timeout=60)
    assert process.returncode == -number
    assert (mounts(), os.path.exists("/gcs")) == (before, existed)
    assert [path for path in files_in(root) if path.name != "half"] == files


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests are those of an ordinary user")
def test_an_ordinary_user_sees_it_too_and_gains_nothing(root: Path, tmp_path: Path) -> None:
    if (refused := as_nobody(["unshare", "--user", "--mount", "true"], tmp_path).returncode) != 0:
        pytest.skip(f"ordinary users get no namespaces here (unshare exits with {refused})")
    for folder in (root, *root.rglob("*")):
        folder.chmod(0o777)
    secret = tmp_path / "secret"
    secret.write_text("root's own")
    secret.chmod(0o600)
    script = f"id -u; cat /gcs/my-bucket/data/hello.txt; grep CapEff /proc/self/status; cat {secret}"
    words = ["python3", *command_prefix(root)[1:], "sh", "-c", script]
    done = as_nobody(words, tmp_path)
    if "python3" in done.stderr or "No module named 't5x_harness'" in done.stderr:
        pytest.skip("ordinary users have no python3 here, or cannot read where the harness is installed")
    assert done.stdout.split() == ["65534", "helloCapEff:", "0" * 16], done.stderr
    assert "Permission denied" in done.stderr


def as_nobody(words: list[str], tmp_path: Path) -> subprocess.CompletedProcess[str]:
    for folder in (tmp_path, *tmp_path.parents):
        if folder != Path("/") and folder.owner() == "root" and folder.is_relative_to("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o755)
    path = "/usr/local/bin:/usr/bin:/bin"
    return subprocess.run(
        ["env", f"PATH={path}", *words],
        check=False, capture_output=True, text=True, user=65534, group=65534, extra_groups=[], cwd="/", timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("command", "status", "message"),
    [
        ("no-such-command-here", 127, "t5x-harness: no-such-command-here: command not found\n"),
        ("/etc", 126, "t5x-harness: /etc: cannot be run: Permission denied\n"),
    ],
)
def test_a_command_that_cannot_be_run_is_told_as_shells_do(
    mode: MountMode, root: Path, command: str, status: int, message: str
) -> None:
    done = subprocess.run([*command_prefix(root, mode), command], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (status, message)


def test_the_best_way_is_taken(root: Path) -> None:
    words, environment = launched(["cat", "/gcs/my-bucket/data/hello.txt"], {"A": "/gcs/x", "PATH": "/bin"}, root)
    if not refusal(MountMode.FOLDER):
        assert environment == {"A": "/gcs/x", "PATH": "/bin"}
    assert subprocess.run(words, check=True, capture_output=True, env=environment).stdout == b"hello"


def test_where_nothing_is_mounted_words_and_variables_are_rewritten(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "refusal", lambda mode: "no")
    words, environment = launched(["cat", "/gcs/my-bucket/data/hello.txt"], {"A": "/gcs/x", "PYTHONPATH": "/p"}, root)
    assert words == ["cat", f"{root}/buckets/my-bucket/data/hello.txt"]
    bootstrap, _, kept = environment.pop("PYTHONPATH").partition(":")
    assert (Path(bootstrap, "sitecustomize.py").is_file(), kept) == (True, "/p")
    assert environment == {"A": f"{root}/buckets/x", "T5X_HARNESS_GCS_PATCH": str(root)}
    program = "print(open('/gcs' + '/my-bucket/data/hello.txt').read())"
    words, environment = launched([sys.executable, "-c", program], os.environ, root)
    assert subprocess.run(words, check=True, capture_output=True, env=environment).stdout == b"hello\n"
    with pytest.raises(NamespaceRefused, match="no"):
        launched(["true"], {}, root, MountMode.FUSE)


def test_a_probe_that_is_refused_gives_the_kernels_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = (
        "import sys, threading, time; threading.Thread(target=time.sleep, args=(1,), daemon=True).start();"
        f"sys.path.append({str(Path(t5x_harness.__file__).parent.parent)!r});"
        "from t5x_harness.google.gcs_mount.mount import main; main(sys.argv[1:])"
    )
    monkeypatch.setattr(probing, "_BOOT", refusing)
    monkeypatch.setattr(probing, "refusal", probing.refusal.__wrapped__)
    for mode in MountMode:
        assert probing.refusal(mode) == "this process has 2 threads, and only a process of one can enter"


def test_the_probe_is_done_once_a_process(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = refusal(MountMode.FOLDER)
    monkeypatch.setattr(probing.subprocess, "run", lambda *_, **__: pytest.fail("probed again"))
    assert refusal(MountMode.FOLDER) == found
    assert launched(["true"], {}, root)[0][-1] == "true"
