"""SEQ09 and SEQ12: vocabularies that differ, and ids without a row of the embedding."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from t5x_harness.findings.rule import Found, Rule, task_files, training
from t5x_harness.gin.config import BindingKey
from t5x_harness.gin.values import format_value
from t5x_harness.spec import Severity

if TYPE_CHECKING:
    from t5x_harness.resolve.datasets import DataRole
    from t5x_harness.resolve.resolved import Resolved


@Rule(
    "SEQ09",
    "vocabulary of the model that is not the task's",
    why=(
        "T5X stops with `Model and Task vocabularies do not match` and two object addresses, which tell nothing apart."
    ),
    bad=training(
        "VOCABULARY = @seqio.ByteVocabulary()",
        "seqio.ByteVocabulary.extra_ids = 7",
        files=task_files("seqio.ByteVocabulary()", "seqio.PassThroughVocabulary(size=256)"),
        at="VOCABULARY",
    ),
    good=training("VOCABULARY = @seqio.ByteVocabulary()"),
)
def different_vocabularies(run: Resolved) -> Iterator[Found]:
    """Finds each feature of a task whose vocabulary is not the model's."""
    import seqio

    from t5x_harness.resolve.datasets import describe_vocabulary

    macro = BindingKey.of_macro("VOCABULARY")
    different: dict[tuple[str, str], list[tuple[DataRole, str, str, Any, Any]]] = {}
    for role, task in run.reads():
        for name, vocabulary, model_s in _pairs(run.model, task):
            if isinstance(model_s, seqio.Vocabulary) and vocabulary != model_s:
                both = describe_vocabulary(vocabulary), describe_vocabulary(model_s)
                different.setdefault(both, []).append((role, task.name, name, vocabulary, model_s))
    yield from _none_at_all(run)
    for (of_task, of_model), users in different.items():
        role, task_name, name, vocabulary, model_s = users[0]
        more = len(dict.fromkeys(user[1:3] for user in users)) - 1
        place = run.registrations.place(task_name)
        registered = f" ({place})" if place else ""
        use = f" and {more} more use" if more else " uses"
        yield Found(
            f"feature {name} of task {task_name}{registered}{use} {of_task}, the "
            f"model {of_model}{_but(run, vocabulary, model_s)}",
            macro if run.config.is_bound(macro) else role.key(run.config, "mixture_or_task_name"),
            f"give the model the task's vocabulary{_as_bindings(vocabulary, model_s)}",
            severity=None if run.verifies_vocabularies else Severity.WARNING,
        )


def _none_at_all(run: Resolved) -> Iterator[Found]:
    """Yields a finding for each value that is given to the model as a vocabulary but is not one, such as a path."""
    import seqio

    for side in ("input", "output"):
        given = getattr(run.model, f"{side}_vocabulary", None)
        key = run.config.find(f"{side}_vocabulary") or run.config.find("vocabulary")
        if given is None or isinstance(given, seqio.Vocabulary) or key is None:
            continue
        owner = run.config.owner(key)
        yield Found(
            f"{owner.short} = {format_value(run.config.written(owner), 80)} is not a vocabulary: the model needs one "
            "of SeqIO, equal to the task's",
            owner,
            "write a reference that makes one, such as @seqio.SentencePieceVocabulary(), and bind its file",
            severity=None if run.verifies_vocabularies else Severity.WARNING,
        )


def _but(run: Resolved, one: Any, other: Any) -> str:
    """Returns a remark on the pieces of two vocabularies; empty if there is nothing to remark."""
    import seqio

    if type(one) is not type(other):
        return ""
    if any(map(run.standins.is_vocabulary_generated, (one, other))):
        return "; their files cannot be read here, so whether their pieces are the same is not known"
    if isinstance(one, seqio.SentencePieceVocabulary):
        with contextlib.suppress(Exception):  # a file cannot be read here
            if one.sp_model == other.sp_model:
                return "; their pieces are the same, but SeqIO compares the file's path and extra_ids"
    return ""


def _as_bindings(wanted: Any, model_s: Any) -> str:
    """Returns the end of a fix: the bindings that give T5X's model configs the wanted SentencePiece vocabulary."""
    import seqio

    if not all(isinstance(vocabulary, seqio.SentencePieceVocabulary) for vocabulary in (wanted, model_s)):
        return ""
    name = "seqio.SentencePieceVocabulary"
    bindings = []
    if wanted.sentencepiece_model_file != model_s.sentencepiece_model_file:
        bindings.append(f"{name}.sentencepiece_model_file = {wanted.sentencepiece_model_file!r}")
    if wanted.extra_ids != model_s.extra_ids:
        bindings.append(f"{name}.extra_ids = {wanted.extra_ids}")
    return f": {' and '.join(bindings)}" if bindings else ""


def _pairs(model: Any, task: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yields features with their vocabulary and the model's vocabulary that T5X compares it with."""
    import seqio

    reads, writes = (getattr(model, f"{side}_vocabulary", None) for side in ("input", "output"))
    features = task.output_features
    if {"inputs", "targets"} <= features.keys():
        yield "inputs", features["inputs"].vocabulary, reads
        yield "targets", features["targets"].vocabulary, writes
        return
    # In a language model's task, the first feature with its own vocabulary represents both sides.
    own = {n: f for n, f in features.items() if not isinstance(f.vocabulary, seqio.PassThroughVocabulary)} or features
    for name, feature in list(own.items())[:1]:
        yield name, feature.vocabulary, reads
        yield name, feature.vocabulary, writes


@Rule(
    "SEQ12",
    "token ids beyond the embedding",
    why="JAX clamps a gather that is out of range: the model trains to the end on rows of other tokens, or on NaN.",
    bad=training("network.T5Config.vocab_size = 100", at="network.T5Config.vocab_size = 100"),
    good=training("network.T5Config.vocab_size = 384"),
)
def ids_beyond_embedding(run: Resolved) -> Iterator[Found]:
    """Finds the largest sampled id without a row, or else the largest vocabulary, which is a warning."""
    from t5x_harness.upstream.seqio import vocabulary_file

    rows, key = run.embedding_rows
    if rows is None:
        return
    beyond, larger = _beyond_and_larger(run, rows)
    name = key.short if key else "vocab_size"
    if beyond:
        where = max(beyond, key=beyond.__getitem__)
        yield Found(
            f"{where} has the id {beyond[where]}, and the embedding has {rows} rows; JAX reads another row without "
            f"an error{_more(beyond)}",
            key,
            f"set {name} to at least {max(beyond[where] + 1, *(size for size, _ in larger.values()))}",
        )
    elif larger:
        where = max(larger, key=lambda where: larger[where][0])
        size, vocabulary = larger[where]
        guessed = run.is_vocabulary_guessed(vocabulary)
        generated = run.standins.is_vocabulary_generated(vocabulary)  # then the ids of examples say nothing
        has = f"has {size} ids"
        if guessed:
            has += f", if the name of {vocabulary_file(vocabulary)} tells its size (it cannot be read here),"
        below = "JAX reads other rows without an error" if generated else "the sampled examples stay below"
        yield Found(
            f"the vocabulary of {where} {has} and the embedding {rows} rows; {below}{_more(larger)}",
            key,
            f"set {name} to at least {size}"
            + (f", or to at least the ids that {vocabulary_file(vocabulary)} has" if guessed else ""),
            severity=Severity.ERROR if generated and not guessed else Severity.WARNING,
        )


def _beyond_and_larger(run: Resolved, rows: int) -> tuple[dict[str, int], dict[str, tuple[int, Any]]]:
    """Returns the largest sampled ids beyond a number of rows, and the vocabularies with more ids, with their sizes."""
    from t5x_harness.resolve.datasets import vocabulary_size

    beyond: dict[str, int] = {}
    larger: dict[str, tuple[int, Any]] = {}
    for role, sample in run.sampled():
        for name, feature in sample.task.output_features.items():
            if feature.dtype.is_integer:
                where = f"feature {name} of {sample.task.name}"
                largest = max((int(e[name].max()) for e in sample.examples if name in e and e[name].size), default=-1)
                if largest >= rows and not run.standins.is_vocabulary_generated(feature.vocabulary):
                    beyond[f"{where} {role.dataset.split}"] = largest
                if (size := vocabulary_size(feature.vocabulary) or 0) > rows:
                    larger[where] = size, feature.vocabulary
    return beyond, larger


def _more(found: Mapping[str, object]) -> str:
    """Returns ``; the same goes for 3 more``, or nothing if there is only one."""
    left = len(found) - 1
    return f"; the same goes for {left} more" if left else ""
