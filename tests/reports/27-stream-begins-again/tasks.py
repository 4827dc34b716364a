import seqio
import tensorflow as tf
from common.sums import FEATURES, STEPS


def rows():
    for number in range(300):
        yield {"inputs": f"{number} + 1", "targets": f"{number + 1}"}


def stream(split, shuffle_files=False, seed=None):
    texts = {name: tf.TensorSpec([], tf.string) for name in ("inputs", "targets")}
    return tf.data.Dataset.from_generator(rows, output_signature=texts)


seqio.TaskRegistry.add(
    "stream",
    source=seqio.FunctionDataSource(stream, splits=("train", "validation")),
    preprocessors=STEPS,
    output_features=FEATURES,
)
