"""Checks find what kills a process, hides /gcs, is missing from a library or differs in T5X before a run does."""

import ast
import os
import re
import shutil
from pathlib import Path

import pytest

from t5x_harness.doctor import machine
from t5x_harness.doctor.check import Diagnosis, Environment, Installed
from t5x_harness.doctor.machine import triton_after_tensorflow
from t5x_harness.doctor.t5x import interface, private_names
from t5x_harness.google.gcs_mount.mount import MountMode
from t5x_harness.runtime.choice import Runtime
from t5x_harness.runtime.import_hooks import EMBEDDED_PATH
from t5x_harness.upstream.names import LIBRARIES

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = Runtime("embedded", "0.1.0", "/lib/t5x_harness/embedded/t5x", "no T5X is installed")


REASON = "namespaces of users and mounts: Operation not permitted"


@pytest.mark.parametrize(
    ("refused", "there", "status", "summary"),
    [
        ({}, False, "ok", "mounted for each run alone; also as FUSE has it"),
        (
            {MountMode.FUSE: "opening /dev/fuse: Permission denied"},
            True,
            "ok",
            "mounted for each run alone over the /gcs of this machine; not as FUSE has it (opening /dev/fuse: "
            "Permission denied)",
        ),
        (
            dict.fromkeys(MountMode, REASON),
            False,
            "warning",
            "patched in runs, and rewritten in the words and variables of commands",
        ),
    ],
)
def test_how_a_machine_shows_gcs(
    monkeypatch: pytest.MonkeyPatch, refused: dict[MountMode, str], there: bool, status: str, summary: str
) -> None:
    monkeypatch.setattr(machine, "refusal", refused.get)
    monkeypatch.setattr(machine.os.path, "isdir", lambda path: there)
    found = machine.gcs_paths.run(Environment((), RUNTIME))
    assert (found.code, found.status, found.summary) == ("ENV10", status, summary)
    for finding in found.findings:
        begin = f"runs get no /gcs of their own ({REASON}): T5X finds such paths, but native code"
        assert finding.message.startswith(begin)
        assert "user.max_user_namespaces" in finding.fix
        assert "--security-opt seccomp=unconfined" in finding.fix


KILLS = "import os, signal, sys\nif 'tensorflow' in sys.modules: os.kill(os.getpid(), signal.SIGSEGV)\n"


def environment(folder: Path, triton: str) -> Environment:
    (folder / "tensorflow.py").touch()
    (folder / "triton.py").write_text(triton)
    installed = (Installed("tensorflow", "2.21.0", str(folder)), Installed("triton", "3.7.1", str(folder)))
    return Environment(installed, RUNTIME, variables={**os.environ, "PYTHONPATH": str(folder)})


def test_triton_that_kills_a_process_with_tensorflow(tmp_path: Path) -> None:
    found = triton_after_tensorflow.run(environment(tmp_path, KILLS))
    assert (found.status, found.summary) == ("warning", "triton 3.7.1 does not load after tensorflow 2.21.0")
    assert found.findings[0].message == (
        "a process that imports tensorflow 2.21.0 and then triton 3.7.1 was killed by SIGSEGV (segfault). So is a run "
        "whose modules load Triton by way of PyTorch or transformers"
    )


def test_one_that_loads_and_one_that_says_what_it_lacks(tmp_path: Path) -> None:
    for module in ("", "raise ImportError('no driver')"):
        found = triton_after_tensorflow.run(environment(tmp_path, module))
        assert (found.status, found.summary) == ("ok", "triton 3.7.1 loads after tensorflow 2.21.0")
    assert triton_after_tensorflow.run(Environment((), RUNTIME)).summary == "not both are installed"


def test_a_name_that_is_gone_is_said_with_library_and_version(tmp_path: Path) -> None:
    (tmp_path / "gin").mkdir()
    file = tmp_path / "gin" / "config.py"
    environment = Environment((Installed("gin-config", "0.5.0", str(tmp_path)),), RUNTIME)
    file.write_text("_CONFIG = {}\n_OPERATIVE_CONFIG = {}\n_FILE_READERS = []\n")
    found = private_names.run(environment)
    assert (found.summary, found.findings) == ("3 of 3 are there: gin-config 0.5.0", ())
    file.write_text("_CONFIGS = {}\n_OPERATIVE_CONFIG = {}\n_FILE_READERS = []\n")
    found = private_names.run(environment)
    assert (found.status, found.summary) == ("warning", "2 of 3 are there: gin-config 0.5.0")
    [finding] = found.findings
    assert finding.message == (
        "gin-config 0.5.0 has no _CONFIG of gin/config.py: what the harness does with it may fail, or take longer"
    )
    assert finding.fix == "python -m pip install 'gin-config<0.5.0'"


def test_a_library_that_is_not_installed_or_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    assert private_names.run(Environment((), RUNTIME)).summary == "no library with any is there"
    unread = Environment((Installed("gin-config", "0.5.0", str(tmp_path)),), RUNTIME)
    assert private_names.run(unread).summary == "no library with any is there"


def names_used_in(file: Path) -> set[str]:
    """Returns the private names in a file's code, except the names that it defines and attributes of ``self``."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    used, own = set(), set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                own.add(name)
            case ast.FunctionDef(name=name) if name != "_split_scope":
                own.add(name)
            case ast.Attribute(attr=name) | ast.Constant(value=str(name)) | ast.keyword(arg=str(name)):
                used.add(name)
    return {name for name in used - own if re.fullmatch(r"_(?!_)\w+", name)} - {"_exit", "_getframe", "_Base"}


@pytest.mark.parametrize("code", sorted({library.code for library in LIBRARIES}))
def test_the_table_has_every_private_name_that_the_code_uses(code: str) -> None:
    listed = {name for lib in LIBRARIES if lib.code == code for names in lib.names.values() for name in names.split()}
    used = names_used_in(ROOT / code)
    assert {name for name in listed if name.startswith("_")} == used


def test_every_file_of_upstream_is_in_the_table() -> None:
    files = {p.name for p in (ROOT / "t5x_harness" / "upstream").glob("*.py") if names_used_in(p)}
    assert files == {Path(lib.code).name for lib in LIBRARIES if "upstream" in lib.code} | {"cpython.py", "names.py"}


@pytest.fixture
def fork(tmp_path: Path) -> Path:
    """Copies a T5X with the recorded interface, to serve as a user's own T5X."""
    ignored = shutil.ignore_patterns("__pycache__", "*.gin")
    return Path(shutil.copytree(Path(EMBEDDED_PATH, "t5x"), tmp_path / "t5x", ignore=ignored))


def examine(folder: Path) -> Diagnosis:
    return interface.run(Environment((), Runtime("installed", "1234abc", str(folder), "a folder")))


def edit(file: Path, pattern: str, by: str) -> None:
    text, edits = re.subn(pattern, by, file.read_text(encoding="utf-8"))
    assert edits
    file.write_text(text, encoding="utf-8")


def test_one_with_the_recorded_interface_is_all_right(fork: Path) -> None:
    found = examine(fork)
    numbers = re.fullmatch(r"(\d+) of (\d+) functions and classes are as recorded", found.summary)
    assert numbers is not None
    assert int(numbers[1]) == int(numbers[2]) > 300
    assert (found.status, found.findings) == ("ok", ())
    embedded = Runtime("embedded", "0.1.0", str(fork), "none is installed")
    assert interface.run(Environment((), embedded)).summary == "the embedded T5X has the recorded interface"
    assert examine(Path("/nowhere")).summary == "not compared: the sources in /nowhere cannot be read"


def test_what_is_gone_or_takes_other_arguments_is_named(fork: Path) -> None:
    (fork / "config_utils.py").unlink()
    edit(fork / "losses.py", r"def cross_entropy_with_logits\(", "def cross_entropy(")
    edit(fork / "gin_utils.py", r"def parse_gin_flags\(\s*gin_search_paths", "def parse_gin_flags(roots")
    found = examine(fork)
    assert found.status == "ok"
    [note] = found.findings
    assert note.severity == "note"
    assert "installed T5X 1234abc (a folder) differs from the recorded T5X: " in note.message
    assert "it has no module config_utils" in note.message
    assert "losses.cross_entropy_with_logits is not there" in note.message
    assert "gin_utils.parse_gin_flags takes no gin_search_paths and requires roots" in note.message


def test_one_without_what_the_harness_changes_cannot_run(fork: Path) -> None:
    edit(fork / "partitioning.py", r"\bget_mesh\b", "build_mesh")
    found = examine(fork)
    assert found.status == "error"
    assert found.findings[0].message == (
        f"the T5X in {fork} has no t5x.partitioning.get_mesh, which the harness changes: runs cannot start"
    )
    assert found.findings[0].fix == "give the fork this function, or use the embedded T5X: --t5x-runtime=embedded"
