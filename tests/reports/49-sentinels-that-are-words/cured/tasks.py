import seqio
import tensorflow as tf

from t5x_harness.sample_tasks import span_corruption, vocabularies

VOCABULARY = seqio.SentencePieceVocabulary(vocabularies.SENTENCEPIECE_MODEL, extra_ids=100)
FEATURE = seqio.Feature(VOCABULARY)


def lines(split, shuffle_files=False, seed=None):
    text = "The Rhine is 1233 km long. It rises in the Alps."
    return tf.data.Dataset.from_tensors({"targets": text}).repeat(200)


def vocabulary():
    return VOCABULARY


seqio.TaskRegistry.add(
    "my_languages",
    source=seqio.FunctionDataSource(lines, splits=("train", "validation")),
    preprocessors=[
        seqio.preprocessors.tokenize,
        span_corruption.span_corruption,
        seqio.preprocessors.append_eos_after_trim,
    ],
    output_features={"inputs": FEATURE, "targets": FEATURE},
)
