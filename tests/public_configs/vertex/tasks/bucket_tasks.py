"""Translation, question answering and summarization from TFDS, for the T5 1.1 checkpoints."""

import collections
import functools

import sacrebleu
import seqio
import tensorflow as tf

VOCABULARY = seqio.SentencePieceVocabulary("gs://t5-data/vocabs/cc_all.32000.100extra/sentencepiece.model")
FEATURES = {
    "inputs": seqio.Feature(VOCABULARY, add_eos=True, required=False),
    "targets": seqio.Feature(VOCABULARY, add_eos=True),
}
PREPARED = [seqio.preprocessors.tokenize, seqio.CacheDatasetPlaceholder(), seqio.preprocessors.append_eos_after_trim]


@seqio.map_over_dataset
def prefixed(example, prefix, source, target):
    """Returns two columns as T5's texts."""
    return {"inputs": tf.strings.join([prefix, example[source]]), "targets": example[target]}


@seqio.map_over_dataset
def question(example):
    """Returns a question with its context; the first answer is the target, and all of them are right."""
    answers = example["answers"]["text"]
    return {
        "inputs": tf.strings.join(["question: ", example["question"], " context: ", example["context"]]),
        "targets": answers[0],
        "answers": answers,
    }


def all_answers(text, example, is_target):
    """Returns all right answers for a target, and the unchanged text for a prediction."""
    return [answer.decode() for answer in example["answers"]] if is_target else text


def bleu(targets, predictions):
    """Returns the corpus BLEU."""
    return {"bleu": sacrebleu.corpus_bleu(predictions, [targets]).score}


def exact_match(targets, predictions):
    """Returns the percentage of predictions that are one of the answers."""
    right = [prediction in answers for answers, prediction in zip(targets, predictions, strict=True)]
    return {"em": 100 * sum(right) / len(right)}


def rouge1(targets, predictions):
    """Returns the F1 score of single words."""
    scores = []
    for target, prediction in zip(targets, predictions, strict=True):
        wanted, got = (collections.Counter(text.lower().split()) for text in (target, prediction))
        common = sum((wanted & got).values())
        scores.append(2 * common / max(1, wanted.total() + got.total()))
    return {"rouge1": 100 * sum(scores) / len(scores)}


seqio.TaskRegistry.add(
    "wmt_de_en",
    source=seqio.TfdsDataSource("wmt_t2t_translate/de-en:1.0.0"),
    preprocessors=[
        functools.partial(prefixed, prefix="translate German to English: ", source="de", target="en"),
        *PREPARED,
    ],
    output_features=FEATURES,
    metric_fns=[bleu],
)

seqio.TaskRegistry.add(
    "squad_all_answers",
    source=seqio.TfdsDataSource("squad/v1.1:3.0.0", splits=["train", "validation"]),
    preprocessors=[question, *PREPARED],
    output_features=FEATURES,
    postprocess_fn=all_answers,
    metric_fns=[exact_match],
)

seqio.TaskRegistry.add(
    "xsum_summaries",
    source=seqio.TfdsDataSource("xsum:1.1.0"),
    preprocessors=[functools.partial(prefixed, prefix="summarize: ", source="document", target="summary"), *PREPARED],
    output_features=FEATURES,
    metric_fns=[rouge1],
)
