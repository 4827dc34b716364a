"""The stack that T5X needs works in forked runs; what would hang there is refused before the fork.

The only tests of this room that import JAX, in other processes, so they take seconds.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from t5x_harness.workers import RunRaised, Zygote, ZygoteFailed, compile_cache_environment

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


def test_jax_options_follow_the_environment_of_the_run(tmp_path: Path) -> None:
    options = {"JAX_ENABLE_X64": "1", "JAX_NUM_CPU_DEVICES": "3", "JAX_DEBUG_NANS": "true"}
    cache = compile_cache_environment(tmp_path / "cache")
    with Zygote(preload=["jax"], env=ENV) as zygote:

        def compile_in_a_run(name: str, **env: str | None) -> list[bool]:
            log = tmp_path / name
            with zygote.start("jax_objects:Options", {}, log=log, env={**cache, **env}, python_path=[HERE]) as run:
                return [run.call("options"), run.call("compile")]

        assert compile_in_a_run("default") == [
            {"jax_enable_x64": False, "devices": 1, "jax_debug_nans": False},
            {"hits": 0, "misses": 1},
        ]
        assert compile_in_a_run("again")[1] == {"hits": 1, "misses": 0}
        assert compile_in_a_run("other", **options)[0] == {"jax_enable_x64": True, "devices": 3, "jax_debug_nans": True}
        for wrong, message in [
            ({"JAX_ENABLE_X64": "perhaps"}, "JAX_ENABLE_X64='perhaps': JAX expects bool here"),
            ({"JAX_PLATFORMS": None}, "JAX_PLATFORMS cannot be unset for this run: JAX read it ('cpu')"),
        ]:
            with pytest.raises(RunRaised) as caught:
                compile_in_a_run("wrong", **wrong)
            assert message in str(caught.value)


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
        "import sys, t5x_harness.workers; "
        "print({'jax', 'numpy', 'tensorflow', 'seqio', 'gin', 'pytest'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
