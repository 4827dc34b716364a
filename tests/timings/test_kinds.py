"""What a stack is seen doing is known by the files in it."""

import functools
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import pytest

from t5x_harness.timings.kinds import Parts, package_of

SITE = f"{sys.prefix}/lib/python3/site-packages"


def stack(*places: str) -> FrameType:
    """Returns the innermost frame of a stack of functions, given as ``file:name``, outermost first."""
    found: list[FrameType] = []

    def note() -> None:
        found.append(sys._getframe(1))

    inner: Callable[[], object] = note
    for place in reversed(places):
        file, _, name = place.rpartition(":")
        space: dict[str, Any] = {"inner": inner}
        if name == "<module>":
            inner = functools.partial(exec, compile("inner()", file, "exec"), space)
        else:
            exec(compile(f"def {name}(): inner()", file, "exec"), space)
            inner = space[name]
    inner()
    return found[0]


@pytest.mark.parametrize(
    ("places", "part"),
    [
        (["jax/_src/pjit.py:_infer_params", "flax/linen/module.py:apply"], "tracing"),
        (["jax/_src/pjit.py:_infer_params", "jax/_src/interpreters/pxla.py:lower_sharding_computation"], "lowering"),
        (["jax/_src/interpreters/mlir.py:lower_jaxpr_to_module"], "lowering"),
        (["jax/_src/compiler.py:compile_or_get_cached"], "compiling"),
        (
            ["jax/_src/compiler.py:compile_or_get_cached", "jax/_src/compilation_cache.py:get_executable_and_time"],
            "reading compiled programs",
        ),
        (["jax/_src/array.py:_value"], "running programs"),
        (["seqio/dataset_providers.py:get_dataset", "tensorflow/python/data/ops/map_op.py:map"], "input pipelines"),
        (["t5x/checkpoints.py:save", "tensorflow/python/lib/io/file_io.py:rename"], "writing checkpoints"),
        (["t5x/checkpoints.py:restore", "jax/_src/array.py:_value"], "reading checkpoints"),
        (["orbax/checkpoint/checkpointer.py:restore"], "reading checkpoints"),
        (
            ["clu/metric_writers/summary_writer.py:write", "tensorflow/python/ops/summary.py:f"],
            "writing metrics",
        ),
        (["gin/config.py:parse_config"], "parsing Gin"),
        (["gin/config.py:gin_wrapper"], "other"),
        (["google/cloud/storage/client.py:get_bucket", "urllib3/connectionpool.py:urlopen"], "Google Cloud"),
    ],
)
def test_parts_are_known_by_their_files(places: Sequence[str], part: str) -> None:
    parts = Parts("/the/t5x")
    assert parts(stack(*(f"{SITE}/{place}" for place in places))).partition(" of ")[0] == part


def test_the_user_s_own_file_is_named() -> None:
    parts = Parts("/the/t5x")
    places = (
        f"{SITE}/seqio/utils.py:map_fn",
        "/home/me/project/my_tasks.py:clean",
        "/tmp/__autograph_generated_1.py:f",
    )
    assert parts(stack(*places)) == "input pipelines of my_tasks.py"
    assert parts(stack("/home/me/project/my_tasks.py:clean", "/the/t5x/models.py:loss")) == "other of my_tasks.py"


def test_a_package_is_known_by_the_module_that_is_being_imported() -> None:
    places = ("tensorflow/__init__.py:<module>", "numpy/__init__.py:<module>", "numpy/core.py:build")
    assert package_of(stack(*(f"{SITE}/{place}" for place in places))) == "numpy"
    assert package_of(stack(f"{SITE}/typing_extensions.py:<module>")) == "typing_extensions"
    # A module of Python itself counts for what imports it, which here is what runs the tests.
    assert package_of(stack("/usr/lib/python3/json.py:<module>")) == package_of(sys._getframe())
