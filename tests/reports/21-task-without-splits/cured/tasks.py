import seqio
from common.sums import FEATURES, SOURCE, STEPS

for name in ("arithmetic", "lambada"):
    seqio.TaskRegistry.add(name, source=SOURCE, preprocessors=STEPS, output_features=FEATURES)
seqio.MixtureRegistry.add("flan_submix", ["arithmetic", "lambada"], default_rate=1.0)
