"""Work that a zygote of runs has done once is not repeated in each run."""

import errno
import os
import pickle
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest
import t5x_in_use

from t5x_harness.spec import RunSpec
from t5x_harness.upstream import autograph
from t5x_harness.upstream.autograph import SEQIO_FUNCTIONS, convert, functions_of
from t5x_harness.upstream.short_run import SMALLEST_SLICE
from t5x_harness.variables import BRIEF_VARIABLE, RUNTIME_VARIABLE, SLICE_VARIABLE
from t5x_harness.workers.run_process import COLLECTED_AFTER
from t5x_harness.workers.zygote import Zygote

HERE = Path(__file__).parent


def test_a_run_imports_no_rule_or_stage_and_converts_nothing_of_seqio(
    zygote: Zygote, train_text: str, tmp_path: Path
) -> None:
    (tmp_path / "config.gin").write_text(train_text)
    paths = [str(HERE), str(HERE.parent / "reference")]
    spec = RunSpec(
        gin_files=("config.gin",), slice="v3:1x1", runtime=t5x_in_use.name, python_path=tuple(paths), cwd=str(tmp_path)
    )
    argument = {"spec": spec.to_json(), "workspace": str(tmp_path / "run")}
    log = tmp_path / "run.log"
    with zygote.start("preloaded_objects:Watched", argument, log=log, cwd=tmp_path, python_path=paths) as run:
        assert run.call("resolve_and_plan", timeout=300) == ["passed", "passed"]
        run.call("build_pipelines", timeout=300)
        settings = run.call("settings", timeout=60)
        assert settings["optimizer"]["disable_meta_optimizer"] is True
        assert settings["garbage"] == COLLECTED_AFTER
        assert run.call("new", timeout=60) == {"modules": [], "functions": []}


def test_every_listed_function_is_converted_once_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorflow.python.autograph.impl import api

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in SEQIO_FUNCTIONS:
        assert convert([name]) >= 1, name
    held = len(api._TRANSPILER._cache)
    assert convert() >= len(SEQIO_FUNCTIONS)
    assert len(api._TRANSPILER._cache) == held
    assert not list(tmp_path.iterdir())


NUMBER = len(functions_of(SEQIO_FUNCTIONS))
ALL_HELD = {"converted": NUMBER, "again": NUMBER, "held": NUMBER, "padded": [0, 1, 2], "new": []}


Converted = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def unconverted() -> Iterator[Zygote]:
    """Yields a process that has imported SeqIO, for forks that convert its functions."""
    with Zygote(preload=["converting"], env={"TF_CPP_MIN_LOG_LEVEL": "3"}, python_path=[str(HERE)]) as zygote:
        yield zygote


@pytest.fixture
def converted(unconverted: Zygote, tmp_path: Path) -> Converted:
    """Returns a function that yields the report of a process that loads or makes conversions."""

    def call(cache: Path) -> dict[str, Any]:
        (tmp_path / "tmp").mkdir(exist_ok=True)
        env = {"TMPDIR": str(tmp_path / "tmp"), "JAX_COMPILATION_CACHE_DIR": str(cache)}
        with unconverted.start("converting:Converting", {}, log=tmp_path / "log", cwd=tmp_path, env=env) as run:
            return dict(run.call("take", timeout=240))

    return call


JOB = """
from t5x_harness.bootstrap.start import start
start()
import t5x.partitioning
import seqio
from tensorflow.python.autograph.impl import api
print(len(api._TRANSPILER._cache))
"""


def converted_in_a_job(cache: Path, brief: str) -> int:
    """Returns how many functions are converted in a process with T5X's imports."""
    env = {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        BRIEF_VARIABLE: brief,
        RUNTIME_VARIABLE: t5x_in_use.name,
        SLICE_VARIABLE: "v3:1x1",
    }
    done = subprocess.run([sys.executable, "-c", JOB], env=env, capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.journey
def test_conversions_are_kept_for_the_next_process_until_they_are_not_whole(converted: Converted, cache: Path) -> None:
    for foreign in (0, NUMBER, 0):
        assert converted(cache) == {**ALL_HELD, "foreign": foreign, "files": []}
        (file,) = cache.iterdir()
        if foreign:
            file.write_bytes(file.read_bytes()[:-100])
    assert converted_in_a_job(cache, brief="1") == NUMBER
    assert converted_in_a_job(cache, brief="") == 0


FUNCTION = types.FunctionType(compile("def f(): pass", "f.py", "exec").co_consts[0], {}, "f")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the harness's own cache, which is in use."""
    folder = tmp_path / "compile-cache" / "jax-0"
    folder.mkdir(parents=True)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(folder))
    return folder


def test_conversions_are_kept_for_these_functions_in_the_harness_s_own_cache_alone(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "own.py"
    source.write_text("def double(x):\n  return 2 * x\n")
    function = types.FunctionType(compile(source.read_text(), str(source), "exec").co_consts[0], {}, "double")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(elsewhere))
    autograph.store([function], [None])
    assert autograph.load([function]) is None
    assert not list(elsewhere.iterdir())
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(cache))
    autograph.store([function], [None])
    assert autograph.load([function]) == [None]
    assert autograph.load([function, function]) is None
    os.utime(source, ns=(1, 1))
    assert autograph.load([function]) is None


def test_a_full_disk_leaves_no_half_of_a_conversion(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: object, file: IO[bytes]) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pickle.dump", full)
    autograph.store([FUNCTION], [None])
    assert list(cache.iterdir()) == []


class _Attack:
    """An object that another user may have put into the cache."""

    def __init__(self, evidence: Path) -> None:
        self.evidence = evidence

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.evidence,)


@pytest.mark.parametrize("owned", ["file", "folder", "folder above"])
def test_nothing_is_unpickled_that_another_user_may_have_written(tmp_path: Path, cache: Path, owned: str) -> None:
    autograph.store([FUNCTION], [None])
    (file,) = cache.iterdir()
    evidence = tmp_path / "evidence"
    file.write_bytes(pickle.dumps([_Attack(evidence)]))
    assert autograph.load([FUNCTION])  # this user's own
    assert evidence.exists()
    evidence.unlink()
    path = {"file": file, "folder": cache, "folder above": cache.parent}[owned]
    if os.getuid() == 0:
        os.chown(path, 12345, 12345)
    else:
        path.chmod(0o777 if path.is_dir() else 0o666)
    assert autograph.load([FUNCTION]) is None
    assert not evidence.exists()


@pytest.mark.parametrize(
    "name",
    ["no_such_module:function", "seqio.utils:no_such_function", "seqio.utils:trim_dataset.<locals>.no_such_function"],
)
def test_what_this_seqio_lacks_is_passed_over(name: str) -> None:
    assert convert([name]) == 0


@pytest.mark.embedded("T5X makes a new function for each stage, which nothing can share from outside")
def test_the_steps_of_one_model_are_traced_by_the_first_stage_alone(zygote: Zygote, tmp_path: Path) -> None:
    with zygote.start(
        "sharing_objects:Stages", {}, log=tmp_path / "run.log", cwd=tmp_path, python_path=[str(HERE)]
    ) as run:
        outputs = run.call("outputs", timeout=300)
    assert outputs["stages"] == [[[0.0, 2.0], 1], [[0.0, -1.0], 2], [[2.0, 4.0], 2], [[-1.0, -2.0], 2]]
    assert outputs["of another"] == 1
    assert outputs["of a function"] == [1.0, 2.0]


@pytest.mark.parametrize("brief", [True, False])
def test_what_pays_only_for_many_steps_is_skipped_if_asked(zygote: Zygote, tmp_path: Path, brief: bool) -> None:
    env = {BRIEF_VARIABLE: "1" if brief else None}
    with zygote.start(
        "sharing_objects:Options", {}, log=tmp_path / "log", env=env, cwd=tmp_path, python_path=[str(HERE)]
    ) as run:
        found = run.call("read", timeout=60)
    assert found["optimises graphs"] is not brief
    assert found["tunes"] is not brief
    assert found["rewrites"] is not brief
    assert (found["smallest slice"] == SMALLEST_SLICE) is brief
