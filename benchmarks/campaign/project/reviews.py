"""Tasks as people write them: spans, labels, their mixture, and metrics of predictions and of scores."""

import functools

import numpy as np
import seqio
import tensorflow as tf

STARS = ("bad", "fair", "good")
VOCABULARY = seqio.ByteVocabulary(extra_ids=100)
OUTPUT_FEATURES = {
    "inputs": seqio.Feature(vocabulary=VOCABULARY, add_eos=True, required=False),
    "targets": seqio.Feature(vocabulary=VOCABULARY, add_eos=True),
}
SPLITS = {"train": 24, "validation": 8}


def load(split, shuffle_files=False, seed=None):  # noqa: ARG001 - SeqIO gives all three
    """Returns the examples of a split as TensorFlow Datasets does: a text, and the number of its label."""
    signature = {"text": tf.TensorSpec((), tf.string), "label": tf.TensorSpec((), tf.int64)}

    def examples():
        for number in range(SPLITS[split]):
            yield {"text": f"film {number} is {STARS[number % 3]}, said {number + 1} of us", "label": number % 3}

    return tf.data.Dataset.from_generator(examples, output_signature=signature)


@seqio.map_over_dataset(num_seeds=1)
def one_span(example, seed, sequence_length, noise_density=0.25):
    """Puts a sentinel in place of a span of tokens, which becomes the target."""
    tokens = example["targets"][: sequence_length["inputs"] - 2]
    size = tf.size(tokens)
    length = tf.maximum(1, tf.cast(tf.cast(size, tf.float32) * noise_density, tf.int32))
    start = tf.random.stateless_uniform((), seed, 0, size - length, tf.int32)
    sentinel = tf.constant([VOCABULARY.vocab_size - 1], tf.int32)
    return {
        "inputs": tf.concat([tokens[:start], sentinel, tokens[start + length :]], axis=0),
        "targets": tf.concat([sentinel, tokens[start : start + length]], axis=0),
    }


def with_label(dataset, label_classes):
    """Makes a question of each review, and a text of its label."""

    def of_one(example):
        label = tf.gather(tf.constant(label_classes), example["label"])
        return {"inputs": tf.strings.join(["review: ", example["text"]]), "targets": label, "stars": example["label"]}

    return dataset.map(of_one, num_parallel_calls=tf.data.AUTOTUNE)


def to_class(text, label_classes, example=None, is_target=False):
    """Returns the number of a label; -1 for any other text."""
    if is_target:
        return int(example["stars"])
    return label_classes.index(text) if text in label_classes else -1


def accuracy(targets, predictions):
    """Returns the share of right labels, in percent."""
    return {"accuracy": 100 * float(np.mean(np.array(targets) == np.array(predictions)))}


def likelihood(targets, scores):
    """Returns the mean score of the targets."""
    return {"likelihood": float(np.sum(scores)) / len(targets)}


seqio.TaskRegistry.add(
    "review_spans",
    source=seqio.FunctionDataSource(load, splits=["train", "validation"], num_input_examples=SPLITS),
    preprocessors=[
        functools.partial(seqio.preprocessors.rekey, key_map={"inputs": None, "targets": "text"}),
        seqio.preprocessors.tokenize,
        seqio.CacheDatasetPlaceholder(),
        functools.partial(one_span, noise_density=0.15),
        seqio.preprocessors.append_eos_after_trim,
    ],
    output_features=OUTPUT_FEATURES,
)
seqio.TaskRegistry.add(
    "review_stars",
    source=seqio.FunctionDataSource(load, splits=["train", "validation"], num_input_examples=SPLITS),
    preprocessors=[
        functools.partial(with_label, label_classes=STARS),
        seqio.preprocessors.tokenize,
        seqio.CacheDatasetPlaceholder(),
        seqio.preprocessors.append_eos_after_trim,
    ],
    output_features=OUTPUT_FEATURES,
    postprocess_fn=functools.partial(to_class, label_classes=STARS),
    metric_fns=[accuracy, likelihood],
)
seqio.MixtureRegistry.add(
    "reviews", [("review_spans", 0.5), ("review_stars", functools.partial(seqio.mixing_rate_num_examples, maximum=16))]
)
