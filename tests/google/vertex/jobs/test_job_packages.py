"""Packages of python_package_spec: those that are unpacked or refused, and the modules that a job imports from them."""

import re
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from job_service import tar

from t5x_harness.buckets.emulated import Store
from t5x_harness.google.vertex.faults import VertexFault
from t5x_harness.google.vertex.jobs import python_environment
from t5x_harness.google.vertex.jobs.endings import JobState
from t5x_harness.google.vertex.jobs.python_environment import PackageError, fetch_packages, unpack

EXECUTOR = "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-11.py310:latest"


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"../out": b"x"}, "the package p.tar.gz holds '../out', which leads out of its folder"),
        ({"a/../../out": b"x"}, "the package p.tar.gz holds 'a/../../out', which leads out of its folder"),
        ({"/out": b"x"}, "the package p.tar.gz holds '/out', which leads out of its folder"),
        (special("a", tarfile.SYMTYPE, "/etc"), "the package p.tar.gz holds 'a', which is a link to '/etc'"),
        (special("a", tarfile.LNKTYPE, "b"), "the package p.tar.gz holds 'a', which is a link to 'b'"),
        (special("a", tarfile.CHRTYPE), "the package p.tar.gz holds 'a', which is a device"),
        (special("a", tarfile.FIFOTYPE), "the package p.tar.gz holds 'a', which is a device"),
    ],
    ids=["up", "up inside", "absolute", "symbolic link", "hard link", "device", "pipe"],
)
def test_what_could_leave_the_folder_is_refused_and_nothing_is_left(tmp_path: Path, entry: Any, message: str) -> None:
    files, others = ({}, [entry]) if isinstance(entry, tarfile.TarInfo) else (entry, [])
    archive = tar(tmp_path / "p.tar.gz", {"good": b"x", **files}, *others)
    with pytest.raises(PackageError) as refused:
        unpack(archive, tmp_path / "in" / "to")
    assert str(refused.value) == message
    assert [path.name for path in (tmp_path / "in").iterdir()] == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "mode", "message"),
    [("a", 0o120777, "holds 'a', which is not a file"), ("../out", 0, "holds '../out', which leads out of its folder")],
)
def test_what_could_leave_the_folder_is_refused_in_wheels_too(
    tmp_path: Path, name: str, mode: int, message: str
) -> None:
    entry = zipfile.ZipInfo(name)
    entry.external_attr = mode << 16
    with zipfile.ZipFile(tmp_path / "p.whl", "w") as archive:
        archive.writestr(entry, "/etc/passwd")
    with pytest.raises(PackageError, match=re.escape(f"the package p.whl {message}")):
        unpack(tmp_path / "p.whl", tmp_path / "to")
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_in_it_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match=r"the package p\.tar\.gz cannot be unpacked: .*File exists"):
        unpack(tar(tmp_path / "p.tar.gz", {"a": b""}, tarfile.TarInfo("a")), tmp_path / "to")


def test_more_than_fits_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_environment, "MOST_BYTES", 1 << 20)
    with pytest.raises(PackageError, match=r"the package p\.tar\.gz holds more than 1 MB"):
        unpack(tar(tmp_path / "p.tar.gz", {"a": bytes(1 << 19), "b": bytes(1 << 20)}), tmp_path / "to")


@pytest.mark.parametrize(
    ("name", "message"),
    [("p.tar.gz", " cannot be unpacked: "), ("p.rpm", " is not an archive that is known here: .tar.gz, .whl, .zip")],
)
def test_what_is_no_archive_is_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / name).write_bytes(b"no archive")
    with pytest.raises(PackageError, match=re.escape(f"the package {name}{message}")):
        unpack(tmp_path / name, tmp_path / "to")


@pytest.mark.parametrize("uri", ["gs://b/none.tar.gz", "gs://b/../../etc/passwd", "/etc/passwd", "https://x/p.whl"])
def test_a_package_that_is_not_in_the_store(tmp_path: Path, uri: str) -> None:
    with pytest.raises(PackageError) as missing:
        fetch_packages([uri], Store(tmp_path), tmp_path / "to")
    assert str(missing.value) == f"the package {uri} of python_package_spec.package_uris is not there"


def python_spec(**fields: Any) -> dict[str, Any]:
    spec = {"executor_image_uri": EXECUTOR, "python_module": "trainer.task", **fields}
    machine = {"machine_type": "n1-standard-4"}
    return {"worker_pool_specs": [{"replica_count": 1, "machine_spec": machine, "python_package_spec": spec}]}


def test_a_job_runs_a_module_of_its_packages(service: Any, bucket: Path) -> None:
    task = b"import helper, os, sys\nprint(helper.WORD, sys.argv[1:], os.environ['MODE'])\n"
    files = {
        "setup.py": b"raise SystemExit('is not run')",
        "src/trainer/__init__.py": b"",
        "src/trainer/task.py": task,
    }
    tar(bucket / "dist" / "trainer-0.1.tar.gz", {f"trainer-0.1/{name}": body for name, body in files.items()})
    with zipfile.ZipFile(bucket / "helper-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("helper.py", "WORD = 'helped'")
    uris = ["gs://b/dist/trainer-0.1.tar.gz", "gs://b/helper-1-py3-none-any.whl"]
    env = [{"name": "MODE", "value": "fast"}]
    job = service.ended(service.create(python_spec(package_uris=uris, args=["--n=1", "two words"], env=env)))
    assert job.state == JobState.SUCCEEDED, service.said(job)
    assert service.said(job) == ["helped ['--n=1', 'two words'] fast"]


# Leaves a file in its package, and makes the package read-only; ends by itself the second time. Its mark is elsewhere.
SPOILS = b"""
import pathlib, sys, time
here = pathlib.Path(__file__).parent
names = sorted(path.name for path in here.iterdir() if path.name != "__pycache__")
print(names, (here / "data").read_text(), flush=True)
(here / "data").write_text("spoilt")
(here / "left").touch()
here.chmod(0o500)
ran = pathlib.Path("../ran")
if ran.exists():
    sys.exit()
ran.touch()
print("ready", flush=True)
time.sleep(100)
"""


@pytest.mark.parametrize("whole", [False, True], ids=["replica", "job"])
def test_what_runs_again_finds_its_package_as_it_was(service: Any, bucket: Path, whole: bool) -> None:
    files = {"setup.py": b"", "trainer/__init__.py": b"", "trainer/task.py": SPOILS, "trainer/data": b"clean"}
    tar(bucket / "trainer-0.1.tar.gz", {f"trainer-0.1/{name}": body for name, body in files.items()})
    service.api.services.faults.arm(VertexFault("preempt", output="ready"))
    scheduling = {"restart_job_on_worker_restart": whole}
    spec = {**python_spec(package_uris=["gs://b/trainer-0.1.tar.gz"]), "scheduling": scheduling}
    job = service.ended(service.create(spec))
    assert job.state == JobState.SUCCEEDED, service.said(job)
    found = "['__init__.py', 'data', 'task.py'] clean"
    assert [line for line in service.said(job) if line != "ready"] == [found, found]


def test_a_job_without_its_package_fails_and_names_it(service: Any) -> None:
    job = service.ended(service.create(python_spec(package_uris=["gs://b/none.tar.gz"])))
    assert job.error.message == (
        "t5x-harness: the package gs://b/none.tar.gz of python_package_spec.package_uris is not there"
    )
