import pathlib

import seqio
from common.sums import FEATURES, STEPS


@seqio.map_over_dataset
def as_pair(line):
    return {"inputs": line, "targets": line}


FILES = str(pathlib.Path(__file__).parent / "data" / "*.txt")

seqio.TaskRegistry.add(
    "lines",
    source=seqio.TextLineDataSource({"train": FILES, "validation": FILES}),
    preprocessors=[as_pair, *STEPS],
    output_features=FEATURES,
)
