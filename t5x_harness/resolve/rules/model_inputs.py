"""SEQ15, SEQ16, SEQ29, SEQ30 and MOD01: lengths, packing and modules that do not fit the model's inputs."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from t5x_harness.findings.rule import TASK, Found, Rule, evaluating, task_files, training
from t5x_harness.spec import Mode, Severity

if TYPE_CHECKING:
    from t5x_harness.gin.config import BindingKey
    from t5x_harness.resolve.datasets import DataRole
    from t5x_harness.resolve.resolved import Resolved


_MOSTLY = 0.5
"""The share of truncated examples above which truncation is hardly intended."""


@Rule(
    "SEQ15",
    "feature without a length, or a length without a feature",
    why="T5X builds the model, restores and only then refuses the lengths, on the TPU.",
    bad=training("TASK_FEATURE_LENGTHS = {'inputs': 32}", at="TASK_FEATURE_LENGTHS"),
    good=training("TASK_FEATURE_LENGTHS = {'inputs': 32, 'targets': 32}"),
)
def feature_lengths(run: Resolved) -> Iterator[Found]:
    """Finds each dataset whose lengths do not fit the model's feature converter."""
    for role in run.roles:
        yield from _wrong_lengths(run, role, role.key(run.config, "task_feature_lengths"))


def _wrong_lengths(run: Resolved, role: DataRole, key: BindingKey | None) -> Iterator[Found]:
    from t5x_harness.resolve.datasets import task_features

    converter = getattr(run.model, "FEATURE_CONVERTER_CLS", None)
    lengths, model = role.dataset.task_feature_lengths, f"the model ({type(run.model).__name__})"
    needed = task_features(converter, lengths or ())
    takes = ", ".join(sorted(needed))
    if lengths is None:
        if not run.has_evaluator(role):
            only = "only evaluation by predictions takes the lengths of the longest example"
            message = f"task_feature_lengths of the {role.name} data is None: {only}"
            yield Found(message, key, f"give a length for {takes or 'each feature'}")
        return
    given = f"task_feature_lengths is {dict(lengths)}"
    if odd := {name: length for name, length in lengths.items() if not _is_length(length)}:
        typed = " and ".join(f"that of {name} is {n!r}, a {type(n).__name__}" for name, n in odd.items())
        message = f"{given}, and {typed}: only whole numbers are lengths"
        yield Found(message, key, "give a whole number, without quotes, point or exponent")
    elif short := _without_positions(converter, lengths):
        message = f"{given}, so that the model's {', '.join(short)} have no position"
        yield Found(message, key, "give each feature a length from 1 up")
    elif (own := _converter_of_class(run, lengths)) is not None:
        bound, at = getattr(converter, "__name__", converter), run.config.find("feature_converter_cls")
        message = (
            f"feature_converter_cls is {bound}, which takes {takes}; {model} has {own} for the features of "
            f"task_feature_lengths, {', '.join(sorted(lengths))}"
        )
        yield Found(message, at, f"leave {at.short if at else 'feature_converter_cls'} out, or bind @seqio.{own}")
    else:
        if missing := ", ".join(sorted(needed - set(lengths))):
            yield Found(f"{given} and has no length for {missing}; {model} takes {takes}", key, f"add {missing}")
        if needed and (further := ", ".join(sorted(set(lengths) - needed))):
            yield Found(f"{given} and also has {further}; {model} takes {takes}", key, f"remove {further}")


def _without_positions(converter: Any, lengths: Mapping[str, int]) -> list[str]:
    """Returns the features of the model that are left without a position; empty if the converter does not list them."""
    try:
        found: Mapping[str, int] = converter(pack=False).get_model_feature_lengths(lengths)
    except Exception:  # lengths of features that the converter does not have, or a custom converter's own demands
        found = {name: length for name, length in lengths.items() if isinstance(length, int) and length < 0}
    return [name for name, length in found.items() if isinstance(length, int) and length < 1]


def _converter_of_class(run: Resolved, lengths: Mapping[str, int]) -> str | None:
    """Returns the feature converter of the model's class, if it takes exactly the features that have lengths.

    Returns None if it does not, or if the config does not bind a different one.
    """
    from t5x_harness.resolve.datasets import task_features

    usual = getattr(type(run.model), "FEATURE_CONVERTER_CLS", None)
    if not isinstance(usual, type) or usual is run.model.FEATURE_CONVERTER_CLS:
        return None
    bound = set(task_features(run.model.FEATURE_CONVERTER_CLS, lengths))
    fits = set(lengths) == set(task_features(usual, lengths))
    return usual.__name__ if bound and fits and bound != set(lengths) else None


def _is_length(length: Any) -> bool:
    """Returns whether a length is a whole number, or one for each dimension of a feature that has several."""
    if isinstance(length, list | tuple):
        return all(map(_is_length, length))
    return length is None or (isinstance(length, int) and not isinstance(length, bool))


@Rule(
    "SEQ16",
    "feature lengths that truncate most examples",
    severity=Severity.WARNING,
    why="What is beyond the length is cut silently; lengths copied from another task hide most of this one.",
    bad=training(
        "TASK_FEATURE_LENGTHS = {'inputs': 32, 'targets': 2}",
        files=task_files("'targets': ['1 2', '3']", "'targets': ['1 2', '3 4']"),
        at="TASK_FEATURE_LENGTHS",
    ),
    good=training(),
)
def truncation(run: Resolved) -> Iterator[Found]:
    """Finds each feature that is truncated in most sampled examples, or longer than its length and not truncated."""
    from t5x_harness.resolve.sameness import formatted_tensor

    for role, sample in run.sampled():
        if run.standins.are_tokens_generated(sample.task):
            continue
        stays = run.config.mode is Mode.TRAIN and not run.has_evaluator(role) and not role.dataset.trim_output_features
        for feature, length in (role.dataset.task_feature_lengths or {}).items():
            share = sample.truncated(feature, length) if sample.whole else 0.0
            if share <= (0 if stays else _MOSTLY) or formatted_tensor(sample, feature):  # another mistake's length
                continue
            who = f"{share:.0%} of the sampled examples of {sample.task.name} {sample.split}"
            sizes = f"the length is {length} and they have up to {sample.longest(feature)} tokens"
            key = role.key(run.config, "task_feature_lengths")
            if stays:
                what = f"are too long in {feature}, and with trim_output_features = False SeqIO stops at the first one"
                fix = f"raise the length of {feature}, or bind trim_output_features = True"
                yield Found(f"{who} {what}: {sizes}", key, fix, severity=Severity.ERROR)
            else:
                yield Found(f"{who} lose part of {feature}: {sizes}", key, f"raise the length of {feature}, or mean it")


_CUT = """\
def cut(dataset, sequence_length):
    return dataset.map(lambda e: {'inputs': e['inputs'][:sequence_length['inputs']], 'targets': e['targets']})


seqio.TaskRegistry.add("""
_CUTTING = {"counting.py": TASK.replace("seqio.TaskRegistry.add(", _CUT).replace("tokenize, ", "tokenize, cut, ")}
_EVALUATED = "utils.DatasetConfig.split = 'validation'"


@Rule(
    "SEQ30",
    "preprocessor that needs the feature lengths where none are given",
    why=(
        "T5X's run configs leave the lengths of evaluated data open (`task_feature_lengths = None`), and SeqIO's "
        "evaluator then refuses a preprocessor such as `span_corruption` that takes `sequence_length`."
    ),
    bad=evaluating(_EVALUATED, "TASK_FEATURE_LENGTHS = None", files=_CUTTING, at="TASK_FEATURE_LENGTHS = None"),
    good=evaluating(_EVALUATED, files=_CUTTING),
)
def lengths_needed(run: Resolved) -> Iterator[Found]:
    """Finds each evaluated task with a preprocessor that needs lengths that it is not given."""
    from t5x_harness.resolve.datasets import needing_lengths

    for role, task in run.reads():
        lacks = role.dataset.task_feature_lengths is None and run.is_evaluated(role, task)
        if lacks and role.dataset.split in task.splits and (needy := needing_lengths(task)):
            yield Found(
                f"task_feature_lengths is None, and preprocessor {needy} of task {task.name} needs the lengths",
                role.key(run.config, "task_feature_lengths"),
                "give the lengths of training"
                if run.config.mode is Mode.EVAL
                else f"set {role.scope}/utils.DatasetConfig.task_feature_lengths = %TASK_FEATURE_LENGTHS",
            )


_CONVERTER = """
import t5x.models


class Converter(seqio.EncDecFeatureConverter):
    PACKING_FEATURE_DTYPES = None


class Model(t5x.models.EncoderDecoderModel):
    FEATURE_CONVERTER_CLS = Converter
"""
_NOT_PACKING = {"counting.py": TASK + _CONVERTER}
_NOT_PACKING_MODEL = (
    "MODEL = @counting.Model()",
    "counting.Model:",
    "  module = @network.Transformer()",
    "  input_vocabulary = %VOCABULARY",
    "  output_vocabulary = %VOCABULARY",
    "  optimizer_def = %OPTIMIZER",
)


@Rule(
    "SEQ29",
    "packing that cannot be done",
    why=(
        "T5X's run configs say `pack = True`. Your own converter without `PACKING_FEATURE_DTYPES`, or with "
        "pass-through features, is refused when the job reads its data. So is `use_custom_packing_ops = True` where "
        "tensor2tensor, whose compiled operations SeqIO then uses, is not installed."
    ),
    bad=training(*_NOT_PACKING_MODEL, files=_NOT_PACKING, at="include 't5x/configs/runs/pretrain.gin'"),
    good=training(
        *_NOT_PACKING_MODEL,
        "train/utils.DatasetConfig.pack = False",
        "train_eval/utils.DatasetConfig.pack = False",
        files=_NOT_PACKING,
    ),
)
def packing(run: Resolved) -> Iterator[Found]:
    """Finds each packed dataset that cannot be packed; predictions and inference never pack."""
    converter = getattr(run.model, "FEATURE_CONVERTER_CLS", None)
    if converter is None or run.config.mode is not Mode.TRAIN:
        return
    for role in run.roles:
        if not role.dataset.pack or run.has_evaluator(role):
            continue
        if role.dataset.use_custom_packing_ops and importlib.util.find_spec("tensor2tensor") is None:
            message = f"{role.name} data is packed by the operations of tensor2tensor, which is not installed"
            key = role.key(run.config, "use_custom_packing_ops")
            yield Found(message, key, f"set {role.scope}/utils.DatasetConfig.use_custom_packing_ops = False")
            continue
        try:
            converter(pack=True, use_custom_packing_ops=role.dataset.use_custom_packing_ops)
        except Exception as error:  # SeqIO or the user's converter refuses
            message = f"{role.name} data is packed, and {converter.__name__} cannot pack: {error}"
            fix = f"set {role.scope}/utils.DatasetConfig.pack = False, or let the converter pack"
            yield Found(message, role.key(run.config, "pack"), fix)


_ENCODER_DECODER = "EncoderDecoderModel"
_DECODER_ONLY = "DecoderOnlyModel"

_MODEL = """\
from t5x import models
MODEL = @models.{model}()
models.{model}:
  module = @network.Transformer()
  {vocabularies}
  optimizer_def = %OPTIMIZER"""
_BAD = _MODEL.format(model=_DECODER_ONLY, vocabularies="vocabulary = %VOCABULARY")
_GOOD = _MODEL.format(
    model=_ENCODER_DECODER, vocabularies="input_vocabulary = %VOCABULARY\n  output_vocabulary = %VOCABULARY"
)


@Rule(
    "MOD01",
    "Flax module that is not of the model's kind",
    why=(
        "`DecoderOnlyModel` calls its module with the decoder's tokens only, `EncoderDecoderModel` with the encoder's "
        "before them. A module of the other kind lacks an argument when T5X makes the train state, on the TPU."
    ),
    bad=training(_BAD, at="  module = @network.Transformer()"),
    good=training(_GOOD),
)
def module_of_another_kind(run: Resolved) -> Iterator[Found]:
    """Finds an encoder-decoder module under a decoder-only model, or the other way around."""
    from t5x import models

    wanted = {models.DecoderOnlyModel: _DECODER_ONLY, models.EncoderDecoderModel: _ENCODER_DECODER}
    model = next((name for kind, name in wanted.items() if isinstance(run.model, kind)), None)
    module = getattr(run.model, "module", None)
    # A model with its own way of making variables may also have its own way of calling the module.
    own = getattr(type(run.model), "get_initial_variables", None)
    if model is None or not getattr(own, "__module__", "").startswith("t5x."):
        return
    kind = _kind_of(module)
    if kind is not None and kind != model:
        has = "takes" if kind == _ENCODER_DECODER else "does not take"
        yield Found(
            f"the model is a {type(run.model).__name__}, and its module {type(module).__name__} "
            f"{has} encoder_input_tokens: it is made for {kind}",
            run.config.find("module", type(run.model).__name__),
            f"use {kind}, or a module that takes what {model} gives it",
        )


def _kind_of(module: Any) -> str | None:
    """Returns the model that a module's ``__call__`` is written for, judging by the names of its arguments.

    Returns None if they fit neither.
    """
    try:
        names = inspect.signature(type(module).__call__).parameters
    except (TypeError, ValueError):
        return None
    if "decoder_input_tokens" not in names:
        return None
    return _ENCODER_DECODER if "encoder_input_tokens" in names else _DECODER_ONLY
