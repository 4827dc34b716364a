"""INF04, MOD03, GIN35, CKP20 and INF09: names that are not among those T5X or JAX knows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from t5x_harness.findings import examples
from t5x_harness.findings.rule import Example, Found, Mistake
from t5x_harness.gin.program import Binding, MacroBinding
from t5x_harness.gin.values import format_value
from t5x_harness.lint.configured import restore_config, run_function, save_config
from t5x_harness.lint.edits import set_literal
from t5x_harness.lint.rule import Context, finds
from t5x_harness.lint.rules.numbers import literals
from t5x_harness.spec import Edit, Mode, Severity
from t5x_harness.system.misspelling import closest, meant

_MODES = ("predict", "score", "predict_with_aux")
_HEAD = examples.head("infer")


INF04 = Mistake(
    "INF04",
    "mode of inference that does not exist",
    why="T5X refuses it only after the job has started and written its config, with `mode must be one of`.",
    bad=Example(_HEAD, bindings=("infer.mode = 'generate'",), at="infer.mode"),
    good=Example(_HEAD, bindings=("infer.mode = 'predict_with_aux'",)),
)


@finds(INF04)
def infer_mode(context: Context) -> Iterator[Found]:
    """Finds a mode that T5X's ``infer`` does not have."""
    for given, near, edits in _misnamed(context, "__main__.infer", "mode", _MODES):
        fix = f"write {given} = {format_value(near)}" if near else f"use {', '.join(_MODES)}"
        yield Found(f"infer has no mode {format_value(given.value)}", given, fix, edits=edits)


def _misnamed(
    context: Context, target: str, param: str, names: Sequence[str]
) -> Iterator[tuple[Binding | MacroBinding, str | None, tuple[Edit, ...]]]:
    """Yields each statement that gives a parameter an unknown name, the closest known one, and the edit to it."""
    for _, given in literals(context, {target: (param,)}):
        if isinstance(given.value, str) and given.value not in names:
            right = meant(given.value, names)
            edits = set_literal(context.program, given.location, given.value, repr(right)) if right else ()
            yield given, closest(given.value, names), edits


_POLICIES = ("none", "minimal", "full")
_SCALABLE = examples.head("pretrain", "from t5x.examples.scalable_t5 import network", model="small").replace(
    "examples/t5/", "examples/scalable_t5/"
)
_CONFIG = "t5x.examples.scalable_t5.network.T5Config"


MOD03 = Mistake(
    "MOD03",
    "remat policy that does not exist, which T5X takes for 'full'",
    severity=Severity.WARNING,
    why=(
        "T5X's scalable networks compare the policy with 'none' and 'minimal', and take anything else for 'full': each "
        "layer is computed again for the gradients. A misspelt 'minimal', or 'None' in quotes, makes steps slower, and "
        "nothing says so."
    ),
    bad=Example(_SCALABLE + "network.T5Config.remat_policy = 'minmal'\n", at="network.T5Config.remat_policy"),
    good=Example(_SCALABLE + "network.T5Config.remat_policy = 'minimal'\n"),
)


@finds(MOD03)
def unknown_remat_policy(context: Context) -> Iterator[Found]:
    """Finds each remat policy of a scalable network that T5X takes for another one."""
    for given, near, edits in _misnamed(context, _CONFIG, "remat_policy", _POLICIES):
        yield Found(
            f"there is no remat policy {given.value!r}: T5X takes it for 'full', and computes each layer twice",
            given,
            f"write {given} = {near!r}" if near else f"use one of {', '.join(map(repr, _POLICIES))}",
            edits=edits,
        )


_TYPES = (
    "bfloat16 float16 float32 float64 float128 int2 int4 int8 int16 int32 int64 uint2 uint4 uint8 uint16 uint32 uint64 "
    "bool complex64 complex128"
).split()
_OTHER_NAMES = frozenset("float int uint half single double complex longdouble intc".split())
_WITH_BITS = re.compile(r"(?:bfloat|float|uint|int|bf|fp|complex)\d+")
_SHORT = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "f32": "float32", "float": "float32"}
_NETWORK = examples.head("pretrain", "from t5x.examples.t5 import network")


GIN35 = Mistake(
    "GIN35",
    "dtype that does not exist",
    why="The model asks JAX for the type when it is built, and stops with `data type not understood`.",
    bad=Example(_NETWORK + "network.T5Config.dtype = 'bfloat15'\n", at="network.T5Config.dtype"),
    good=Example(_NETWORK + "network.T5Config.dtype = 'bfloat16'\n"),
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


_SAVED = ("float32", "bfloat16")
_RESTORED = ("float32", "float16", "bfloat16")
_TRAIN = examples.head("pretrain", "from t5x import utils")
_INFER = (
    examples.head("infer", "import __main__ as infer_script", "from t5x import utils")
    + "infer_script.infer.mode = 'score'\n"
)


CKP20 = Mistake(
    "CKP20",
    "checkpoint dtype that T5X does not know",
    why="T5X takes None, 'float32' and 'bfloat16', and for restoring 'float16' too; it refuses all other names.",
    bad=Example(_TRAIN + "utils.SaveCheckpointConfig.dtype = 'fp32'\n", at="utils.SaveCheckpointConfig.dtype"),
    good=Example(_TRAIN + "utils.SaveCheckpointConfig.dtype = 'float32'\n"),
)


@finds(CKP20)
def checkpoint_dtype(context: Context) -> Iterator[Found]:
    """Finds a dtype that T5X's checkpoint configs refuse, for saving and for restoring."""
    for part, known in ((save_config(context), _SAVED), (restore_config(context), _RESTORED)):
        given = part.parameter("dtype")
        if given is None or not isinstance(given.value, str) or given.value in known:
            continue
        near = _SHORT.get(given.value.lower()) or closest(given.value, known)
        yield Found(
            f"{given.at} = {given.value!r} is none of {', '.join(map(repr, known))} and None",
            given.at,
            f"write {given.at} = {near!r}" if near in known else f"use one of {', '.join(map(repr, known))}",
        )


INF09 = Mistake(
    "INF09",
    "scores from parameters rounded to bfloat16",
    severity=Severity.NOTE,
    why=(
        "T5X's infer.gin restores parameters as bfloat16, which keeps two to three decimal digits of each, while "
        "training and its evaluation use float32: the same model gives other scores."
    ),
    bad=Example(_INFER, at="infer_script.infer.mode"),
    good=Example(_INFER + "utils.RestoreCheckpointConfig.dtype = 'float32'\n"),
)


@finds(INF09)
def scores_in_bfloat16(context: Context) -> Iterator[Found]:
    """Finds scores that are computed with rounded parameters."""
    mode = run_function(context, Mode.INFER).parameter("mode")
    dtype = restore_config(context).parameter("dtype")
    if mode is None or dtype is None or mode.value not in ("score", "predict_with_aux") or dtype.value != "bfloat16":
        return
    yield Found(
        f"mode {mode.value!r} gives scores of parameters that are rounded to bfloat16 ({dtype.at.location})",
        mode.at if context.in_t5x(dtype.at.location) else dtype.at,
        f"for the scores of training bind {dtype.binding} = 'float32'",
    )
