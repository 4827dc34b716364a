"""SEQ10, SEQ14 and SEQ41: span-corruption sentinels that are words, and features that never end, or end twice."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from t5x_harness.findings.rule import Example, Found, Rule, task_files, training
from t5x_harness.spec import Severity

if TYPE_CHECKING:
    import numpy as np
    import seqio

    from t5x_harness.resolve.datasets import DataRole
    from t5x_harness.resolve.resolved import Resolved
    from t5x_harness.resolve.samples import Sample

_LEAST_EXAMPLES = 0.8
"""The share of examples that must look corrupted; ordinary text may also contain the highest id."""

_BYTES_FROM = 3
"""The id of byte 0, after padding, end of sequence and unknown."""

_OF_UTF8 = frozenset(range(0xF5)) - {0xC0, 0xC1}
_MODULE = """\
import seqio
import tensorflow as tf
from t5x_harness.sample_tasks import span_corruption, vocabularies


def lines(split, shuffle_files=False, seed=None):
    return tf.data.Dataset.from_tensors({'targets': 'The Rhine is 1233 km long. It rises in the Alps.'}).repeat(8)


FEATURE = seqio.Feature(seqio.SentencePieceVocabulary(vocabularies.SENTENCEPIECE_MODEL, extra_ids=0))

seqio.TaskRegistry.add(
    'counting',
    source=seqio.FunctionDataSource(lines, splits=('train', 'validation')),
    preprocessors=[
        seqio.preprocessors.tokenize, span_corruption.span_corruption, seqio.preprocessors.append_eos_after_trim
    ],
    output_features={'inputs': FEATURE, 'targets': FEATURE},
)
"""


def _taken_from(module: str) -> Example:
    """Returns an example with the vocabulary of a task's module."""
    return training(
        "VOCABULARY = @counting.pieces()",
        "network.T5Config.vocab_size = 640",
        files={"counting.py": f"{module}\n\ndef pieces():\n    return FEATURE.vocabulary\n"},
        at="MIXTURE_OR_TASK_NAME",
    )


@Rule(
    "SEQ10",
    "sentinels of span corruption that are pieces of text",
    severity=Severity.WARNING,
    why=(
        "Span corruption takes its sentinels from the top of the vocabulary. With `extra_ids=0`, or with more spans "
        "than extra ids, those are words: the model learns two meanings for each, and nothing says so."
    ),
    bad=_taken_from(_MODULE),
    good=_taken_from(_MODULE.replace("extra_ids=0", "extra_ids=100")),
)
def overwritten_pieces(run: Resolved) -> Iterator[Found]:
    """Finds each task with sampled sentinels that are also pieces of text."""
    for role, sample in run.sampled():
        feature = sample.task.output_features.get("targets")
        if role.name != "train" or feature is None:
            continue
        used = _sentinels_of(sample)
        piece = _overwritten_piece(feature.vocabulary, used) if used else None
        if piece:
            extra = feature.vocabulary.extra_ids
            also = f"is also the piece {piece[1]!r}"
            if run.standins.is_vocabulary_generated(feature.vocabulary):
                also = "is also a piece of text, unless the last pieces of its file are sentinels"
            yield Found(
                f"the examples of task {sample.task.name} are corrupted spans with {used} sentinels, and its "
                f"vocabulary has {f'{extra} extra ids' if extra else 'no extra ids'}: the sentinel with the id "
                f"{piece[0]} {also}",
                role.key(run.config, "mixture_or_task_name"),
                f"give the vocabulary of the task, and the model's, at least {max(100, used)} extra_ids",
            )


def _sentinels_of(sample: Sample) -> int:
    """Returns the number of sentinels in the most corrupted example; 0 if the examples are not corrupted spans.

    The i-th sentinel is the i-th id from the top, and marks the same place in inputs and targets.
    """
    import numpy as np

    feature = sample.task.output_features.get("targets")
    top = (feature.vocabulary.vocab_size if feature else 0) or 0
    found = [
        _sentinels(example["inputs"], example["targets"], top)
        for example in sample.examples
        if all(name in example and np.ndim(example[name]) == 1 for name in ("inputs", "targets"))
    ]
    corrupted = sum(number > 0 for number in found)
    return max(found) if found and corrupted >= _LEAST_EXAMPLES * len(found) else 0


def _sentinels(inputs: np.ndarray, targets: np.ndarray, top: int) -> int:
    """Counts the sentinels that are in both texts, each exactly once and in order."""
    import numpy as np

    number, places = 0, (-1, -1)
    while True:
        here = tuple(np.flatnonzero(text == top - 1 - number) for text in (inputs, targets))
        if any(len(p) != 1 or p[0] <= before for p, before in zip(here, places, strict=True)):
            return number
        places = (int(here[0][0]), int(here[1][0]))
        number += 1


def _overwritten_piece(vocabulary: seqio.Vocabulary, sentinels: int) -> tuple[int, str] | None:
    """Returns the id and text of the first sentinel that is also a piece of text.

    Returns None if none is, or if the vocabulary cannot tell.
    """
    import seqio
    from sentencepiece import sentencepiece_model_pb2

    top = vocabulary.vocab_size - 1
    ids = range(top, top - sentinels, -1)
    if isinstance(vocabulary, seqio.ByteVocabulary):
        # ByT5 takes its few sentinels from bytes that UTF-8 does not use.
        return next(((i, f"0x{i - _BYTES_FROM:02X}") for i in ids if i - _BYTES_FROM in _OF_UTF8), None)
    if not isinstance(vocabulary, seqio.SentencePieceVocabulary):
        return None
    pieces = sentencepiece_model_pb2.ModelProto.FromString(vocabulary.sp_model).pieces
    kinds = sentencepiece_model_pb2.ModelProto.SentencePiece
    of_text = (kinds.NORMAL, kinds.BYTE)  # extra ids have their own kind or name
    named = ((i, pieces[i]) for i in ids)
    return next(((i, p.piece) for i, p in named if p.type in of_text and "extra_id" not in p.piece), None)


@Rule(
    "SEQ14",
    "targets or inputs without the end-of-sequence id",
    severity=Severity.WARNING,
    why=(
        "Training looks well, and decoding goes on to the maximum length: the model never saw an end. For inputs, and "
        "for targets that are declared with `add_eos=False`, it is a note."
    ),
    bad=training(files=task_files(", seqio.preprocessors.append_eos", ""), at="seqio.TaskRegistry.add("),
    good=training(),
)
def no_end_of_sequence(run: Resolved) -> Iterator[Found]:
    """Finds each train task with a feature of which no sampled value ends with the end-of-sequence id."""
    lacking: dict[str, dict[str, tuple[DataRole, seqio.Feature, int]]] = {}
    for role, task, name, eos, values in _whole_features(run):
        if values and not any(len(value) and value[-1] == eos for value in values):
            lacking.setdefault(task.name, {})[name] = role, task.output_features[name], eos
    for task_name, features in lacking.items():
        place, fix = run.registrations.place(task_name), "append seqio.preprocessors.append_eos"
        if "targets" in features:  # what adds the id to them adds it to the inputs, too
            role, feature, eos = features["targets"]
            message = f"no sampled target of {task_name} ends with the end-of-sequence id {eos}, so decoding never "
            message += f"learns to stop{'' if feature.add_eos else '; the feature has add_eos=False'}"
            severity = None if feature.add_eos else Severity.NOTE
            fix += " and declare the feature with add_eos=True"
            key = role.key(run.config, "mixture_or_task_name")
            yield Found(message, key, fix, severity=severity, location=place)
            continue
        for name, (role, feature, eos) in features.items():
            if feature.add_eos:
                message = (
                    f"feature {name} of task {task_name} has add_eos=True, the default, and no sampled value ends "
                )
                message += f"with the end-of-sequence id {eos}"
                key = role.key(run.config, "mixture_or_task_name")
                own = f"{fix}, or declare the feature with add_eos=False"
                yield Found(message, key, own, severity=Severity.NOTE, location=place)


@Rule(
    "SEQ41",
    "targets or inputs with the end-of-sequence id twice",
    severity=Severity.WARNING,
    why=(
        "Two preprocessors append it. The model learns to write an end after the end: of each target one token is "
        "wasted, and its share of the loss and of the accuracy is too good to be true."
    ),
    bad=training(
        files=task_files(
            "seqio.preprocessors.append_eos]", "seqio.preprocessors.append_eos, seqio.preprocessors.append_eos]"
        ),
        at="seqio.TaskRegistry.add(",
    ),
    good=training(),
)
def ends_twice(run: Resolved) -> Iterator[Found]:
    """Finds each train task in which every sampled value of a feature ends with two end-of-sequence ids."""
    twice: dict[str, tuple[DataRole, int, list[str]]] = {}
    for role, task, name, eos, values in _whole_features(run):
        if values and all(len(v) > 1 and v[-1] == v[-2] == eos for v in values):
            twice.setdefault(task.name, (role, eos, []))[2].append(name)
    for name, (role, eos, features) in twice.items():
        which = " and ".join(feature.removesuffix("s") for feature in features)
        message = f"every sampled {which} of {name} ends with the end-of-sequence id {eos} twice"
        at, place = role.key(run.config, "mixture_or_task_name"), run.registrations.place(name)
        yield Found(message, at, "append it in one preprocessor", location=place)


def _whole_features(run: Resolved) -> Iterator[tuple[DataRole, seqio.Task, str, int, list[Any]]]:
    """Yields each feature of ids of each train task, with its end-of-sequence id and its sampled values.

    Values that were cut at their length may have lost the id, and are left out. A feature without any token has none.
    """
    import numpy as np

    from t5x_harness.resolve.sameness import blank

    for role, sample in run.sampled():
        for name, feature in sample.task.output_features.items():
            eos = getattr(feature.vocabulary, "eos_id", None)
            if role.name != "train" or eos is None or blank(sample.values(name), eos):
                continue
            longest = math.inf if sample.whole else (role.dataset.task_feature_lengths or {}).get(name, math.inf)
            kept = [v for v in sample.values(name) if np.ndim(v) == 1 and v.dtype.kind in "iu" and len(v) < longest]
            yield role, sample.task, name, eos, kept
