import seqio
from common.sums import FEATURES, SOURCE, STEPS

seqio.TaskRegistry.add("learning_to_recite:questions", source=SOURCE, preprocessors=STEPS, output_features=FEATURES)
