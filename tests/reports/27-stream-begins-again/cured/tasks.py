import seqio
from common.sums import FEATURES, STEPS, sums

seqio.TaskRegistry.add(
    "stream",
    source=seqio.FunctionDataSource(sums, splits=("train", "validation")),
    preprocessors=STEPS,
    output_features=FEATURES,
)
