"""GIN35: names of types that do not exist."""

from __future__ import annotations

import re
from collections.abc import Iterator

from t5x_harness.findings import examples
from t5x_harness.findings.rule import Example, Found, Mistake
from t5x_harness.lint.rule import Context, finds
from t5x_harness.system.misspelling import closest

_TYPES = (
    "bfloat16 float16 float32 float64 float128 int2 int4 int8 int16 int32 int64 uint2 uint4 uint8 uint16 uint32 uint64 "
    "bool complex64 complex128"
).split()
_OTHER_NAMES = frozenset("float int uint half single double complex longdouble intc".split())
_WITH_BITS = re.compile(r"(?:bfloat|float|uint|int|bf|fp|complex)\d+")
_SHORT = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_HEAD = examples.head("pretrain", "from t5x.examples.t5 import network")


GIN35 = Mistake(
    "GIN35",
    "UnknownType",
    "dtype that does not exist",
    why="The model asks JAX for the type when it is built, and stops with `data type not understood`.",
    bad=Example(_HEAD + "network.T5Config.dtype = 'bfloat15'\n", at="network.T5Config.dtype"),
    good=Example(_HEAD + "network.T5Config.dtype = 'bfloat16'\n"),
)


@finds(GIN35)
def unknown_type(context: Context) -> Iterator[Found]:
    """Finds a type that JAX does not have, in each of T5X's models."""
    said: set[tuple[str, str, str]] = set()
    for binding in context.program.final_bindings:
        is_model = binding.target.startswith("t5x.examples.") and binding.target.endswith("Config")
        if binding.param != "dtype" or not is_model:  # CKP20 has those of checkpoints
            continue
        given = context.program.resolve(binding)
        if given.key in said or not isinstance(given.value, str) or _may_exist(given.value):
            continue
        said.add(given.key)
        near = _SHORT.get(given.value) or closest(given.value, _TYPES)
        yield Found(
            f"{given} = {given.value!r}: there is no type of this name",
            given,
            f"did you mean {near!r}?" if near else f"use one of {', '.join(_TYPES)}",
        )


def _may_exist(name: str) -> bool:
    """Returns whether a name is a type's, or one that only NumPy can judge, such as ``<f4``."""
    if name in _TYPES or name in _OTHER_NAMES or name.startswith("float8") or name.startswith("float4"):
        return True
    return _WITH_BITS.fullmatch(name) is None and closest(name, _TYPES) is None
