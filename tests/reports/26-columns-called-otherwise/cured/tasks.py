import functools

import seqio
import tensorflow as tf
from common.sums import FEATURES, STEPS, sums


def lines(split, shuffle_files=False, seed=None):
    return sums(split).map(lambda row: tf.strings.join([row["inputs"], row["targets"]], "\t"))


@seqio.map_over_dataset
def parse_tsv(line, field_names):
    return dict(zip(field_names, tf.io.decode_csv(line, ["", ""], field_delim="\t"), strict=True))


seqio.TaskRegistry.add(
    "winograd",
    source=seqio.FunctionDataSource(lines, splits=("train", "validation")),
    preprocessors=[functools.partial(parse_tsv, field_names=["inputs", "targets"]), *STEPS],
    output_features=FEATURES,
)
