"""A task like those that users have: sums, as text of bytes."""

import seqio
import tensorflow as tf

FEATURE = seqio.Feature(seqio.ByteVocabulary())


def sums(split, shuffle_files=False, seed=None):
    numbers = range(300)
    return tf.data.Dataset.from_tensor_slices(
        {"inputs": [f"{n} + 1" for n in numbers], "targets": [f"{n + 1}" for n in numbers]}
    )


def exact(targets, predictions):
    return {"exact": sum(map(str.__eq__, targets, predictions)) / len(targets)}


SOURCE = seqio.FunctionDataSource(sums, splits=("train", "validation"))
STEPS = [seqio.preprocessors.tokenize, seqio.preprocessors.append_eos]
FEATURES = {"inputs": FEATURE, "targets": FEATURE}

seqio.TaskRegistry.add("sums", source=SOURCE, preprocessors=STEPS, output_features=FEATURES, metric_fns=[exact])
