"""SEQ09 and SEQ12: vocabularies that differ, and ids without a row of the embedding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from t5x_harness.resolve import examples
from t5x_harness.resolve.rule import Example, ResolveRule
from t5x_harness.spec import Finding, Severity

if TYPE_CHECKING:
    from t5x_harness.resolve.resolved import Resolved


class DifferentVocabularies(ResolveRule):
    """A task whose vocabulary is not the model's."""

    code = "SEQ09"
    title = "vocabulary of the model that is not the task's"
    why = (
        "T5X stops with `Model and Task vocabularies do not match` and two object addresses, which tell nothing apart."
    )
    bad = Example(
        examples.trained("VOCABULARY = @seqio.ByteVocabulary()", "seqio.ByteVocabulary.extra_ids = 7"),
        files=examples.files("seqio.ByteVocabulary()", "seqio.PassThroughVocabulary(size=256)"),
        at="VOCABULARY",
    )
    good = Example(examples.trained("VOCABULARY = @seqio.ByteVocabulary()"), files=examples.FILES)

    def check(self, run: Resolved) -> Iterator[Finding]:
        """Yields a finding for each feature of a task whose vocabulary differs."""
        import seqio

        from t5x_harness.resolve.gin_config import BindingKey
        from t5x_harness.resolve.vocabularies import describe_vocabulary

        macro = BindingKey.of_macro("VOCABULARY")
        seen = set()
        for role in run.roles:
            for task in run.tasks[role.parameter]:
                for name, vocabulary, model_s in _pairs(run.model, task):
                    if not isinstance(model_s, seqio.Vocabulary) or vocabulary == model_s or (task.name, name) in seen:
                        continue
                    seen.add((task.name, name))
                    but = _SAME_PIECES if _have_same_pieces(vocabulary, model_s) else ""
                    yield self.finding(
                        run.config,
                        f"feature {name} of task {task.name} uses {describe_vocabulary(vocabulary)}, the model "
                        f"{describe_vocabulary(model_s)}{but}",
                        macro if run.config.is_bound(macro) else role.key(run.config, "mixture_or_task_name"),
                        f"give the model the task's vocabulary{_as_bindings(vocabulary, model_s)}",
                        severity=None if run.verifies_vocabularies else Severity.WARNING,
                    )


_SAME_PIECES = "; their pieces are the same, but SeqIO compares the file's path and extra_ids"


def _have_same_pieces(one: Any, other: Any) -> bool:
    """Whether two vocabularies are SentencePiece models of the same content."""
    import seqio

    if not all(isinstance(vocabulary, seqio.SentencePieceVocabulary) for vocabulary in (one, other)):
        return False
    try:
        same: bool = one.sp_model == other.sp_model
    except Exception:  # a file cannot be read here
        return False
    return same


def _as_bindings(wanted: Any, model_s: Any) -> str:
    """What makes T5X's model configs give the model a SentencePiece vocabulary, as further words of a mend."""
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
    """Features with their vocabulary and the model's that T5X compares it with."""
    import seqio

    reads, writes = (getattr(model, f"{side}_vocabulary", None) for side in ("input", "output"))
    features = task.output_features
    if {"inputs", "targets"} <= features.keys():
        yield "inputs", features["inputs"].vocabulary, reads
        yield "targets", features["targets"].vocabulary, writes
        return
    # Of a language model's task any feature with a vocabulary of its own stands for both sides.
    own = {n: f for n, f in features.items() if not isinstance(f.vocabulary, seqio.PassThroughVocabulary)} or features
    for name, feature in list(own.items())[:1]:
        yield name, feature.vocabulary, reads
        yield name, feature.vocabulary, writes


class IdsBeyondEmbedding(ResolveRule):
    """Ids for which the embedding has no row."""

    code = "SEQ12"
    title = "token ids beyond the embedding"
    why = "JAX clamps a gather that is out of range: the model trains to the end on rows of other tokens, or on NaN."
    bad = Example(
        examples.trained("network.T5Config.vocab_size = 100"),
        files=examples.FILES,
        at="network.T5Config.vocab_size = 100",
    )
    good = Example(examples.trained("network.T5Config.vocab_size = 384"), files=examples.FILES)

    def check(self, run: Resolved) -> Iterator[Finding]:
        """Yields an error for the largest sampled id without a row; else a warning for the largest vocabulary."""
        from t5x_harness.resolve.resolved import embedding_rows

        rows, key = embedding_rows(run.model, run.config)
        if rows is None:
            return
        ids, sizes = _ids_and_sizes(run)
        beyond = {where: largest for where, largest in ids.items() if largest >= rows}
        larger = {where: size for where, size in sizes.items() if size > rows}
        name = key.short if key else "vocab_size"
        if beyond:
            where = max(beyond, key=beyond.__getitem__)
            yield self.finding(
                run.config,
                f"{where} has the id {beyond[where]}, and the embedding has {rows} rows; JAX reads another row without "
                f"an error{_more(beyond)}",
                key,
                f"set {name} to at least {max(beyond[where] + 1, *larger.values(), 0)}",
            )
        elif larger:
            where = max(larger, key=larger.__getitem__)
            published = where in _published(run)  # made up to its size, so that ids of examples say nothing
            below = (
                "JAX reads other rows without an error" if published else "the sampled examples happen to stay below"
            )
            yield self.finding(
                run.config,
                f"the vocabulary of {where} has {larger[where]} ids and the embedding {rows} rows; {below}"
                f"{_more(larger)}",
                key,
                f"set {name} to at least {larger[where]}",
                severity=Severity.ERROR if published else Severity.WARNING,
            )


def _published(run: Resolved) -> set[str]:
    """The features whose vocabulary is one of T5's, which a made-up one of the same size stands for."""
    from t5x_harness.resolve.vocabularies import vocabulary_file
    from t5x_harness.standins.vocabularies import is_published

    return {
        f"feature {name} of {sample.task.name}"
        for _, sample in run.sampled()
        for name, feature in sample.task.output_features.items()
        if run.is_vocabulary_made_up(feature.vocabulary) and is_published(vocabulary_file(feature.vocabulary) or "")
    }


def _ids_and_sizes(run: Resolved) -> tuple[dict[str, int], dict[str, int]]:
    """The largest sampled id of each feature and split, and the size of each feature's vocabulary."""
    from t5x_harness.resolve.vocabularies import vocabulary_size

    ids: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for role, sample in run.sampled():
        for name, feature in sample.task.output_features.items():
            if feature.dtype.is_integer:
                where = f"feature {name} of {sample.task.name}"
                found = [int(e[name].max()) for e in sample.examples if name in e and e[name].size]
                ids[f"{where} {role.dataset.split}"] = max(found, default=-1)
                sizes[where] = vocabulary_size(feature.vocabulary) or 0
    return ids, sizes


def _more(found: Mapping[str, int]) -> str:
    """``; so are 3 more``, or nothing where there is only one."""
    left = len(found) - 1
    return f"; so {'is' if left == 1 else 'are'} {left} more" if left else ""
