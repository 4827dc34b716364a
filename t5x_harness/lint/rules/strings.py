"""GIN08, GIN35, CKP20, INF04, INF09 and MOD03: strings in place of other types, or that T5X does not know."""

import ast
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from t5x_harness.findings.rule import Example, Found, Rule, run_head, training
from t5x_harness.gin.program import Binding, MacroBinding
from t5x_harness.gin.values import format_value
from t5x_harness.lint.edits import set_literal
from t5x_harness.lint.rule import Context, restore_config, run_function, save_config
from t5x_harness.lint.rules.numbers import COUNTS, LENGTHS, NETWORK_CONFIGS, literals, read_as
from t5x_harness.spec import Edit, Mode, Severity
from t5x_harness.system.misspelling import closest, meant

_NUMBERS: Mapping[str, tuple[str, ...]] = {
    "__main__.train": ("random_seed",),
    "t5x.utils.DatasetConfig": ("seed",),
    "t5x.utils.SaveCheckpointConfig": ("keep",),
    "t5x.utils.create_learning_rate_scheduler": ("base_learning_rate", "warmup_steps", "decay_factor"),
    "t5x.models.EncoderDecoderModel": ("z_loss", "label_smoothing"),
    "t5x.models.DecoderOnlyModel": ("z_loss", "label_smoothing"),
    "t5x.adafactor.Adafactor": ("weight_decay_rate", "beta1", "global_norm_clip_threshold", "clipping_threshold"),
}
_COUNTED = {target: names for target, names in COUNTS.items() if target not in NETWORK_CONFIGS}
"""The parameters with which T5X calculates; some of its models' sizes may be lists."""

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9_]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NEEDED: Mapping[type, str] = {
    bool: "a boolean is needed",
    int: "a number is needed",
    float: "a number is needed",
    tuple: "a tuple or list is needed",
    list: "a tuple or list is needed",
    dict: "a dict is needed",
    type(None): "None is written without quotes",
}


GIN08 = Rule(
    "GIN08",
    "string or list where a number, boolean, None, tuple or dict is needed",
    why=(
        "A quoted value is a string. TRAIN_STEPS = '100' fails with `'<' not supported between instances of 'str' and "
        "'int'`, after the model was built and restored; 'False' does not fail at all, because a string that is not "
        "empty counts as true. A list for a number fails as late. A value is judged by what T5X and its libraries "
        "take, and by what included files give the same parameter."
    ),
    later=(
        "A batch size has to be a whole number from 1 up: T5X computes with it after it built the datasets, and ends "
        "with `not all arguments converted`."
    ),
    bad=training("BATCH_SIZE = '16'", at="BATCH_SIZE = '16'"),
    good=training("BATCH_SIZE = 16"),
)


@GIN08
def quoted_value(context: Context) -> Iterator[Found]:
    """Finds each value that is clearly meant to have another type: a string, or a list for a count."""
    seen: set[tuple[str, str, str]] = set()
    for binding in context.program.final_bindings:
        given, target = context.program.resolve(binding), binding.target
        if given.key in seen:
            continue
        if isinstance(given.value, str) and (kind := _needed(context, binding, given)) is not None:
            seen.add(given.key)
            plain, needed = given.value.strip(), _NEEDED[kind]
            fix = f"give {needed.removesuffix(' is needed')}"
            if _literal(plain) is not _NOT_A_LITERAL:
                fix = f"take the quotes away: {given} = {plain}"
            is_simple = plain in ("True", "False", "None") or _NUMBER.fullmatch(plain) is not None
            yield Found(
                f"{given} = {given.value!r} is a string, and {needed}{read_as(binding, given)}",
                given,
                fix,
                severity=Severity.ERROR if _is_of_t5x(binding) else Severity.WARNING,
                edits=set_literal(context.program, given.location, given.value, plain) if is_simple else (),
            )
        elif isinstance(given.value, (list, tuple, dict)) and given.value and binding.param in _COUNTED.get(target, ()):
            seen.add(given.key)
            yield Found(
                f"{given} = {format_value(given.value)} is a {type(given.value).__name__}, and a number is needed"
                f"{read_as(binding, given)}",
                given,
                "give a number",
            )
        elif binding.param in LENGTHS.get(target, ()) and isinstance(given.value, dict):
            seen.add(given.key)
            yield from _lengths(binding, given)


def _lengths(binding: Binding, given: Binding | MacroBinding) -> Iterator[Found]:
    """Yields a finding for each feature length that is a string."""
    for feature, length in given.value.items():
        if isinstance(length, str):
            plain = _NUMBER.fullmatch(length.strip()) is not None
            yield Found(
                f"the length of {feature} in {given} is the string {length!r}, and a number is needed"
                f"{read_as(binding, given)}",
                given,
                f"write {feature!r}: {length.strip()}" if plain else "give a number",
            )


def _is_of_t5x(binding: Binding) -> bool:
    return binding.target.split(".")[0] in ("t5x", "__main__")


def _needed(context: Context, binding: Binding, given: Binding | MacroBinding) -> type | None:
    """Returns the type that a text should have; None if a text may be right."""
    if binding.param in (*COUNTS.get(binding.target, ()), *_NUMBERS.get(binding.target, ())):
        return int
    if binding.param in LENGTHS.get(binding.target, ()):
        return dict
    written = _literal(given.value)
    if written is _NOT_A_LITERAL:
        return None
    known = context.snapshot.find(binding.target)
    if known is None or known.parameters is None or binding.param not in known.parameters:
        return None
    if (binding.target, binding.param) == ("t5x.utils.DatasetConfig", "shuffle"):
        return bool
    default = known.defaults.get(binding.param)
    if written is None:
        return None if isinstance(default, str) else type(None)
    overridden = [s for s in context.program.statements if isinstance(s, (Binding, MacroBinding)) and s is not given]
    others = [default, *(other.value for other in overridden if other.key == given.key)]
    kinds = {_kind(value) for value in others if value is not None} - {None}
    kind = _kind(written)
    if not kinds and kind in (list, dict) and _is_of_t5x(binding):  # the default is None or an object
        return kind
    if kinds == {bool} and written in (0, 1):
        return bool
    return kind if kinds == {kind} else None


def _kind(value: Any) -> type | None:
    """Returns the type of a literal: one for all numbers, one for lists and tuples; None for anything else."""
    if isinstance(value, bool):
        return bool
    if isinstance(value, (int, float)):
        return int
    if isinstance(value, (list, tuple)):
        return list
    return type(value) if isinstance(value, (str, dict)) else None


_NOT_A_LITERAL = object()


@functools.lru_cache(maxsize=1024)
def _literal(text: str) -> Any:
    """Returns the number, boolean, None, tuple, list or dict that a text spells."""
    try:
        value = ast.literal_eval(text.strip()) if len(text) <= 1000 else text
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return _NOT_A_LITERAL
    return value if value is None or _kind(value) in (bool, int, list, dict) else _NOT_A_LITERAL


_MODES = ("predict", "score", "predict_with_aux")
_HEAD = run_head("infer")


@Rule(
    "INF04",
    "mode of inference that does not exist",
    why="T5X refuses it only after the job has started and written its config, with `mode must be one of`.",
    bad=Example(_HEAD, bindings=("infer.mode = 'generate'",), at="infer.mode"),
    good=Example(_HEAD, bindings=("infer.mode = 'predict_with_aux'",)),
)
def infer_mode(context: Context) -> Iterator[Found]:
    """Finds a mode that T5X's ``infer`` does not support."""
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
_SCALABLE = run_head("pretrain", "from t5x.examples.scalable_t5 import network", model="small").replace(
    "examples/t5/", "examples/scalable_t5/"
)


@Rule(
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
def unknown_remat_policy(context: Context) -> Iterator[Found]:
    """Finds each remat policy of a scalable network that T5X treats as another one."""
    for given, near, edits in _misnamed(context, NETWORK_CONFIGS[1], "remat_policy", _POLICIES):
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
_SHORT = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "f32": "float32", "float": "float32"}
_NETWORK = run_head("pretrain", "from t5x.examples.t5 import network")


@Rule(
    "GIN35",
    "dtype that does not exist",
    why="The model asks JAX for the type when it is built, and stops with `data type not understood`.",
    bad=Example(_NETWORK + "network.T5Config.dtype = 'bfloat15'\n", at="network.T5Config.dtype"),
    good=Example(_NETWORK + "network.T5Config.dtype = 'bfloat16'\n"),
)
def unknown_type(context: Context) -> Iterator[Found]:
    """Finds a type that JAX does not have, in each of T5X's models."""
    said: set[tuple[str, str, str]] = set()
    for binding in context.program.final_bindings:
        is_model = binding.target.startswith("t5x.examples.") and binding.target.endswith("Config")
        if binding.param != "dtype" or not is_model:  # CKP20 reports those of checkpoints
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
    """Returns whether a name is that of a type, or one that only NumPy can judge, such as ``<f4``."""
    if name in _TYPES or name in _OTHER_NAMES or name.startswith("float8") or name.startswith("float4"):
        return True
    return re.fullmatch(r"(?:bfloat|float|uint|int|bf|fp|complex)\d+", name) is None and closest(name, _TYPES) is None


_TRAIN = run_head("pretrain", "from t5x import utils")
_INFER = (
    run_head("infer", "import __main__ as infer_script", "from t5x import utils")
    + "infer_script.infer.mode = 'score'\n"
)


@Rule(
    "CKP20",
    "checkpoint dtype that T5X does not know",
    why="T5X takes None, 'float32' and 'bfloat16', and for restoring 'float16' too; it refuses all other names.",
    bad=Example(_TRAIN + "utils.SaveCheckpointConfig.dtype = 'fp32'\n", at="utils.SaveCheckpointConfig.dtype"),
    good=Example(_TRAIN + "utils.SaveCheckpointConfig.dtype = 'float32'\n"),
)
def checkpoint_dtype(context: Context) -> Iterator[Found]:
    """Finds a dtype that T5X's checkpoint configs refuse, for saving and for restoring."""
    parts = {("float32", "bfloat16"): save_config, ("float32", "float16", "bfloat16"): restore_config}
    for known, part in parts.items():
        given = part(context).parameter("dtype", str)
        if given is None or given.value in known:
            continue
        near = _SHORT.get(given.value.lower()) or closest(given.value, known)
        yield Found(
            f"{given.at} = {given.value!r} is none of {', '.join(map(repr, known))} and None",
            given.at,
            f"write {given.at} = {near!r}" if near in known else f"use one of {', '.join(map(repr, known))}",
        )


@Rule(
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
