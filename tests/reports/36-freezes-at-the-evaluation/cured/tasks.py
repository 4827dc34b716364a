import seqio
from common.sums import FEATURES, SOURCE, STEPS


def judged(targets, predictions):
    return {"judged": sum(map(str.__eq__, targets, predictions))}


seqio.TaskRegistry.add("judged_sums", source=SOURCE, preprocessors=STEPS, output_features=FEATURES, metric_fns=[judged])
