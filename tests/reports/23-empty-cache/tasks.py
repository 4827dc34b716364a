import pathlib

import seqio
from common.sums import FEATURES, SOURCE

seqio.add_global_cache_dirs([str(pathlib.Path(__file__).parent / "cache")])
seqio.TaskRegistry.add(
    "my_sums",
    source=SOURCE,
    preprocessors=[seqio.preprocessors.tokenize, seqio.CacheDatasetPlaceholder(), seqio.preprocessors.append_eos],
    output_features=FEATURES,
)
