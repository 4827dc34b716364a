"""The stack that T5X needs works in forked runs; modules that would hang there are refused before the fork.

Only these tests of this folder import JAX, in other processes, so they take seconds.
"""

import concurrent.futures
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from t5x_harness.runtime.compile_cache import compile_cache_environment
from t5x_harness.workers.errors import RunRaised, ZygoteFailed
from t5x_harness.workers.run import RunProcess
from t5x_harness.workers.zygote import Zygote

HERE = str(Path(__file__).parent)
STACK = ("jax", "seqio", "orbax.checkpoint", "clu", "flax", "tensorflow")
ENV = {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}


def test_the_whole_stack_works_after_a_fork(tmp_path: Path) -> None:
    """Eight devices in one run and two in another at the same time, tf.data with threads, an orbax save and restore."""
    with Zygote(preload=STACK, env=ENV) as zygote:
        runs = {
            devices: zygote.start(
                "jax_objects:Stack", {"devices": devices}, log=tmp_path / f"{devices}.log", python_path=[HERE]
            )
            for devices in (8, 2)
        }
        for devices, run in runs.items():
            assert run.call("train", timeout=300) == {"devices": devices, "sum": 8.0 * devices}
            assert run.call("read", count=100, timeout=300) == 100 * 101 // 2
            assert run.call("matmul", timeout=300) == 300.0
            assert run.call("save", folder=str(tmp_path / f"saved_{devices}"), timeout=300) == [0.0, 1.0, 2.0, 3.0]
        assert runs[8].call("random", timeout=60) != runs[2].call("random", timeout=60)


@pytest.fixture(scope="module")
def with_jax() -> Iterator[Zygote]:
    with Zygote(preload=["jax"], env=ENV) as zygote:
        yield zygote


def _options(zygote: Zygote, log: Path, **env: str | None) -> dict[str, object]:
    with zygote.start("jax_objects:Options", {}, log=log, env=env, python_path=[HERE]) as run:
        found: dict[str, object] = run.call("options")
        return found


def test_jax_options_follow_the_environment_of_the_run(with_jax: Zygote, tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert _options(with_jax, log) == {"jax_enable_x64": False, "devices": 1, "jax_debug_nans": False}
    found = _options(with_jax, log, JAX_ENABLE_X64="1", JAX_NUM_CPU_DEVICES="3", JAX_DEBUG_NANS="true")
    assert found == {"jax_enable_x64": True, "devices": 3, "jax_debug_nans": True}


def test_jax_options_that_cannot_be_had_are_refused(with_jax: Zygote, tmp_path: Path) -> None:
    with pytest.raises(RunRaised, match="JAX_ENABLE_X64='perhaps': JAX expects bool here"):
        _options(with_jax, tmp_path / "log", JAX_ENABLE_X64="perhaps")
    with pytest.raises(RunRaised, match=r"JAX_PLATFORMS cannot be unset for this run: JAX read it \('cpu'\)"):
        _options(with_jax, tmp_path / "log", JAX_PLATFORMS=None)


def test_runs_share_a_compile_cache(with_jax: Zygote, tmp_path: Path) -> None:
    """This also holds if they fill it at the same time, or if one was killed while writing an entry."""
    cache = tmp_path / "cache"
    env = compile_cache_environment(cache)

    def start(name: str) -> RunProcess:
        return with_jax.start("jax_objects:Options", {}, log=tmp_path / name, env=env, python_path=[HERE])

    runs = [start("filling") for _ in range(3)]
    with concurrent.futures.ThreadPoolExecutor(3) as threads:
        answers = list(threads.map(lambda run: run.call("compile"), runs))
    for run in runs:
        run.close()
    assert {answer["result"] for answer in answers} == {5.0}
    assert any(answer["misses"] for answer in answers)
    assert "Error" not in (tmp_path / "filling").read_text()
    with start("hitting") as run:
        assert run.call("compile") == {"hits": 1, "misses": 0, "result": 5.0}
    for entry in cache.glob("*-cache"):
        os.truncate(entry, entry.stat().st_size // 2)
    with start("fixing") as run:
        assert run.call("compile") == {"hits": 0, "misses": 1, "result": 5.0}
    with start("fixed") as run:
        assert run.call("compile") == {"hits": 1, "misses": 0, "result": 5.0}


def test_an_entry_of_the_compile_cache_is_there_whole_or_not_at_all(with_jax: Zygote, tmp_path: Path) -> None:
    env = compile_cache_environment(tmp_path / "cache")
    with with_jax.start("jax_objects:Options", {}, log=tmp_path / "log", env=env, python_path=[HERE]) as run:
        assert run.call("write_entries", folder=str(tmp_path / "entries"), text="a" * 1000) == ["a" * 1000, "other"]
    assert {file.name for file in (tmp_path / "entries").iterdir()} == {"key-cache"}


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import jax; jax.devices()", "it created a JAX backend (it made an array or asked for the devices)"),
        (
            "import tensorflow; tensorflow.constant(1)",
            "it started TensorFlow's runtime (it made a tensor or a dataset)",
        ),
    ],
)
def test_a_module_that_starts_a_runtime_is_refused(tmp_path: Path, code: str, message: str) -> None:
    (tmp_path / "eager_module.py").write_text(code)
    zygote = Zygote(preload=["eager_module"], env=ENV, python_path=[str(tmp_path)])
    with zygote, pytest.raises(ZygoteFailed) as caught:
        zygote.start("json:dumps", {}, log=tmp_path / "log")
    assert str(caught.value).startswith(f"Importing eager_module in the worker process failed:\n{message}")


def test_the_parent_imports_nothing_heavy() -> None:
    code = (
        "import sys, t5x_harness.workers.in_process, t5x_harness.workers.progress, t5x_harness.workers.zygote; "
        "print({'jax', 'numpy', 'tensorflow', 'seqio', 'gin', 'pytest'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
