import time

import seqio
from common.sums import FEATURES, SOURCE, STEPS


def judged(targets, predictions):
    time.sleep(1_000_000)  # waits for a service that does not answer
    return {"judged": sum(map(str.__eq__, targets, predictions))}


seqio.TaskRegistry.add("judged_sums", source=SOURCE, preprocessors=STEPS, output_features=FEATURES, metric_fns=[judged])
