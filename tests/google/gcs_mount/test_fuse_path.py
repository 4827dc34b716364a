"""`fuse_path`: a bucket with three addresses, in this process, in processes that a test starts, and in runs."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

pytest.importorskip("httptools", reason="the extra google is not installed")

from t5x_harness.fixtures.storage import FusePath
from t5x_harness.google.gcs import FakeGcs
from t5x_harness.google.gcs_mount.mount import MountMode
from t5x_harness.google.gcs_mount.probing import refusal
from t5x_harness.sample_tasks import CONFIGS

MODES = [
    pytest.param(mode.value, marks=pytest.mark.skipif(bool(refusal(mode)), reason=f"/gcs: {refusal(mode)}"))
    for mode in MountMode
]


def stored(gcs: FakeGcs, path: FusePath, name: str) -> bytes:
    """Returns the bytes of an object, downloaded from the emulated Cloud Storage."""
    address = f"{gcs.endpoint}/storage/v1/b/{path.path.name}/o/{quote(name, safe='')}?alt=media"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(address) as answer:
        body: bytes = answer.read()
    return body


def test_its_names_are_those_of_one_bucket(fuse_path: FusePath, gcs_bucket: str) -> None:
    assert str(fuse_path) == str(fuse_path.path) == f"/gcs/{gcs_bucket}"
    assert fuse_path.url == f"gs://{gcs_bucket}"
    assert fuse_path.local.is_dir()
    assert fuse_path.mode is MountMode.FOLDER


def test_this_process_reads_and_writes_by_the_local_folder(
    fuse_path: FusePath, fake_gcs: FakeGcs, gcs_tree: Callable[..., str]
) -> None:
    gcs_tree({"rows/0.txt": "one row"})
    assert (fuse_path.local / "rows" / "0.txt").read_text() == "one row"
    (fuse_path.local / "rows" / "1.txt").write_text("another")
    assert stored(fake_gcs, fuse_path, "rows/1.txt") == b"another"


@pytest.mark.parametrize("fuse_mode", MODES)
def test_processes_see_gcs_and_gs(fuse_path: FusePath, fake_gcs: FakeGcs, fuse_mode: str) -> None:
    (fuse_path.local / "in").write_text("in")
    program = """
import os, subprocess, sys, urllib.request
folder, bucket = sys.argv[1], os.path.basename(sys.argv[1])
text = open(f"{folder}/in").read() + subprocess.check_output(["cat", f"{folder}/in"], text=True)
with open(f"{folder}/out", "w") as file:
    file.write(text)
address = os.environ["STORAGE_EMULATOR_HOST"] + f"/storage/v1/b/{bucket}/o/out?alt=media"
print(urllib.request.urlopen(address).read().decode())
"""
    done = fuse_path.run([sys.executable, "-c", program, fuse_path.path], capture_output=True, text=True, check=True)
    assert done.stdout == "inin\n"
    assert stored(fake_gcs, fuse_path, "out") == b"inin"
    assert fuse_path.mode == fuse_mode


@pytest.mark.parametrize("fuse_mode", MODES)
def test_a_file_that_is_being_written_is_seen_as_the_mode_has_it(fuse_path: FusePath, fuse_mode: str) -> None:
    program = "import sys; f = open(sys.argv[1], 'w'); f.write('half'); f.flush(); print(flush=True); input()"
    words = [sys.executable, "-c", program, fuse_path.path / "log"]
    with fuse_path.launch(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout
        assert writer.stdout.readline() == "\n"
        assert (fuse_path.local / "log").exists() is (fuse_mode == "folder")
        writer.communicate("\n")
    assert (fuse_path.local / "log").read_text() == "half"


def test_a_text_for_a_shell_is_refused(fuse_path: FusePath) -> None:
    with pytest.raises(TypeError, match=r"a command as a list of words, not 'cat x': shlex\.split makes one"):
        fuse_path.run("cat x")


RUN_TEST = """
import pathlib
import shutil

import pytest


@pytest.mark.parametrize("fuse_mode", MODES)
def test_it(t5x_run, fuse_path, fuse_mode):
    (fuse_path.local / "vocabulary.txt").write_text(f"seen in {fuse_mode}")
    pathlib.Path("tasks_on_gcs.py").write_text(f'''
import os
text = open("{fuse_path}/vocabulary.txt").read()
os.makedirs("{fuse_path}/some/folder")
with open("{fuse_path}/some/folder/out", "w") as file:
    file.write(text)
try:
    os.rename("{fuse_path}/some", "{fuse_path}/other")
except OSError as error:
    text += ", " + error.strerror
raise RuntimeError(text)
''')
    shutil.copy("train.gin", fuse_path.local / "train.gin")
    result = t5x_run(f"{fuse_path}/train.gin", search_paths=["."], check=False)
    [finding] = result.stage("resolve").findings
    wanted = {"folder": "seen in folder", "fuse": "seen in fuse, Too many open files"}[fuse_mode]
    assert finding.message.endswith(f"raised RuntimeError: {wanted}")
    assert (fuse_path.local / ("other" if fuse_mode == "folder" else "some") / "folder" / "out").exists()
"""


@pytest.mark.usefixtures("imported")
def test_runs_and_their_gin_files_see_it(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # two modules of the same name and size in a second
    modes = [mode.value for mode in MountMode if not refusal(mode)] or ["folder"]
    source = CONFIGS / "finetune_answer.gin"
    pytester.path.joinpath("train.gin").write_text(f"{source.read_text()}\nimport tasks_on_gcs\n")
    (pytester.path / "models").symlink_to(CONFIGS / "models")
    pytester.makepyfile(RUN_TEST.replace("MODES", repr(modes)))
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "--t5x-runtime=embedded")
    result.assert_outcomes(passed=len(modes))


def test_a_conftest_chooses_the_mode_and_a_wrong_one_is_told(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("import pytest\n\n@pytest.fixture\ndef fuse_mode():\n    return 'fuse'\n")
    pytester.makepyfile(
        """
        import pytest

        def test_chosen(fuse_path):
            assert fuse_path.mode == "fuse"

        @pytest.mark.parametrize("fuse_mode", ["gcsfuse"])
        def test_wrong(fuse_path):
            pass
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-rs")
    result.stdout.fnmatch_lines(["fuse_mode is one of folder, fuse, not 'gcsfuse'"])
    if refused := refusal(MountMode.FUSE):
        result.assert_outcomes(skipped=1, errors=1)
        result.stdout.fnmatch_lines([f"*/gcs cannot be as Cloud Storage FUSE here: {refused}; see t5x-harness doctor*"])
    else:
        result.assert_outcomes(passed=1, errors=1)


PARALLEL = """
import json, pathlib

import pytest


@pytest.mark.parametrize("number", range(6))
def test_alone(number, fake_gcs, gcs_bucket, gcs_tree, fuse_path, worker_id):
    gcs_tree({"who": f"{worker_id} {number}"})
    assert [bucket["name"] for bucket in fake_gcs._items("/storage/v1/b?project=p")] == [gcs_bucket]
    done = fuse_path.run(["cat", fuse_path.path / "who"], capture_output=True, text=True, check=True)
    assert done.stdout == f"{worker_id} {number}"
    uploads = [request.object for request in fake_gcs.requests if request.operation == "upload"]
    assert uploads == []  # the fixtures' own are not recorded
    with open(pathlib.Path("seen") / f"{worker_id}-{number}", "w") as file:
        json.dump([fake_gcs.endpoint, gcs_bucket], file)
"""


def test_workers_have_servers_and_buckets_of_their_own(pytester: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    seen = pytester.mkdir("seen")
    pytester.makepyfile(PARALLEL)
    pytester.runpytest_subprocess("-p", "no:cacheprovider", "-n", "2").assert_outcomes(passed=6)
    found = {path.name: json.loads(path.read_text()) for path in Path(seen).iterdir()}
    assert len({bucket for _, bucket in found.values()}) == 6
    servers = {(name.split("-")[0], endpoint) for name, (endpoint, _) in found.items()}
    assert len(servers) == len({worker for worker, _ in servers}) == len({endpoint for _, endpoint in servers})
