"""Questions about passages in many languages, from TFDS, for umT5."""

import seqio
import tensorflow as tf

VOCABULARY = seqio.SentencePieceVocabulary("gs://t5-data/vocabs/umt5.256000/sentencepiece.model", extra_ids=300)


@seqio.map_over_dataset
def question_and_passage(example):
    """Makes the first answer the target, and keeps all answers for the metric."""
    inputs = tf.strings.join(["question: ", example["question"], " context: ", example["context"]])
    return {"inputs": inputs, "targets": example["answers"]["text"][0], "answers": example["answers"]["text"]}


def exact(targets, predictions):
    """Returns the percentage of predictions that are one of the answers."""
    return {"exact": 100 * sum(map(str.__eq__, targets, predictions)) / len(targets)}


seqio.TaskRegistry.add(
    "goldp_questions",
    source=seqio.TfdsDataSource("tydi_qa/goldp:3.0.0", splits={"train": "train", "validation": "validation"}),
    preprocessors=[
        question_and_passage,
        seqio.preprocessors.tokenize,
        seqio.CacheDatasetPlaceholder(),
        seqio.preprocessors.append_eos_after_trim,
    ],
    output_features={name: seqio.Feature(VOCABULARY) for name in ("inputs", "targets")},
    metric_fns=[exact],
)
