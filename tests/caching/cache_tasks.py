"""A user's module with tasks that are cached and some that cannot be cached."""

TASKS = """
import os
import time

import seqio
import tensorflow as tf

HERE = os.path.dirname(os.path.abspath(__file__))
FEATURES = {name: seqio.Feature(seqio.ByteVocabulary()) for name in ("inputs", "targets")}
PLACE = seqio.CacheDatasetPlaceholder


@seqio.map_over_dataset(num_seeds=1)
def noisy(line, seed):
    number = tf.random.stateless_uniform([], seed, 0, 1000, tf.int32)
    return {"inputs": line, "targets": tf.strings.join([line, tf.strings.as_string(number)]), "w": tf.constant([[0.5]])}


def plain(dataset):
    return dataset.map(lambda line: {"inputs": line, "targets": line})


def add(name, *steps):
    seqio.TaskRegistry.add(
        name,
        source=seqio.TextLineDataSource({"train": HERE + "/lines-*.txt", "validation": HERE + "/lines-0.txt"}),
        preprocessors=[*steps, seqio.preprocessors.append_eos],
        output_features=FEATURES,
    )


def at_third(function):
    # Passes lines on; before that of the third file, function is called.
    def before(line):
        if line.numpy().startswith(b"the line 2 0"):
            function()
        return line

    def step(dataset):
        return dataset.map(lambda line: tf.ensure_shape(tf.py_function(before, [line], tf.string), []))

    return step


def die():
    if os.path.exists("die"):
        os._exit(9)


def wait():
    open("waiting", "w").close()
    while not os.path.exists("go"):
        time.sleep(0.01)


def random_text(line):
    return line + os.urandom(4).hex().encode()


def guess(dataset):
    return dataset.map(
        lambda line: {"inputs": line, "targets": tf.ensure_shape(tf.numpy_function(random_text, [line], tf.string), [])}
    )


def doubles(dataset):
    return dataset.map(lambda line: {"inputs": line, "targets": line, "weight": tf.constant(0.1, tf.float64)})


tokenize = seqio.preprocessors.tokenize
add("noisy_lines", noisy, tokenize, PLACE())
add("dies", at_third(die), plain, tokenize, PLACE())
add("waits", at_third(wait), plain, tokenize, PLACE())
add("guesses", guess, tokenize, PLACE())
add("of_doubles", doubles, tokenize, PLACE())
add("without_place", plain, tokenize)
add("breaks", lambda dataset: dataset.map(lambda line: {"inputs": line["text"]}), tokenize, PLACE())
seqio.MixtureRegistry.add("both", [("noisy_lines", 1), ("waits", 1)])
"""
