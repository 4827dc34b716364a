"""SEQ10, SEQ14 and SEQ41: span-corruption sentinels that are words, and targets that never end, or end twice."""

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
    "targets without the end-of-sequence id",
    severity=Severity.WARNING,
    why="Training looks well, and decoding goes on to the maximum length: the model never saw an end.",
    bad=training(files=task_files(", seqio.preprocessors.append_eos", ""), at="MIXTURE_OR_TASK_NAME"),
    good=training(),
)
def no_end_of_sequence(run: Resolved) -> Iterator[Found]:
    """Finds each train task in which no sampled target ends with the end-of-sequence id."""
    for role, task, eos, targets in _whole_targets(run):
        if targets and not any(len(t) and t[-1] == eos for t in targets):
            yield Found(
                f"no sampled target of {task} ends with the end-of-sequence id {eos}, so decoding never learns to stop",
                role.key(run.config, "mixture_or_task_name"),
                "append seqio.preprocessors.append_eos and declare the feature with add_eos=True",
            )


@Rule(
    "SEQ41",
    "targets with the end-of-sequence id twice",
    severity=Severity.WARNING,
    why=(
        "Two preprocessors append it. The model learns to write an end after the end: of each target one token is "
        "wasted, and its share of the loss and of the accuracy is too good to be true."
    ),
    bad=training(
        files=task_files(
            "seqio.preprocessors.append_eos]", "seqio.preprocessors.append_eos, seqio.preprocessors.append_eos]"
        ),
        at="MIXTURE_OR_TASK_NAME",
    ),
    good=training(),
)
def ends_twice(run: Resolved) -> Iterator[Found]:
    """Finds each train task in which every sampled target ends with two end-of-sequence ids."""
    for role, task, eos, targets in _whole_targets(run):
        if targets and all(len(t) > 1 and t[-1] == t[-2] == eos for t in targets):
            message = f"every sampled target of {task} ends with the end-of-sequence id {eos} twice"
            yield Found(message, role.key(run.config, "mixture_or_task_name"), "append it in one preprocessor")


def _whole_targets(run: Resolved) -> Iterator[tuple[DataRole, str, int, list[Any]]]:
    """Yields each train task with its end-of-sequence id and the sampled targets that were not cut at their length."""
    import numpy as np

    for role, sample in run.sampled():
        feature = sample.task.output_features.get("targets")
        eos = getattr(feature.vocabulary, "eos_id", None) if feature is not None else None
        if role.name != "train" or eos is None:
            continue
        # A target that was cut at its length may have lost the id.
        longest = math.inf if sample.whole else (role.dataset.task_feature_lengths or {}).get("targets", math.inf)
        targets = [t for t in sample.values("targets") if np.ndim(t) == 1 and len(t) < longest]
        yield role, sample.task.name, eos, targets
