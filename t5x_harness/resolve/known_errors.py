"""The exception texts that the failure catalog knows, each with its code, its meaning and the fix.

They are from gin 0.5, SeqIO 0.0.20, T5X at cc342d4, and the embedded T5X if it words a refusal differently.
"""

import dataclasses
import re
from collections.abc import Sequence

from t5x_harness.resolve.checkpoint_errors import CHECKPOINT_ERRORS
from t5x_harness.resolve.known_error import KnownError

_WRONG_FEATURE = r"(?:Task dataset|Dataset) has incorrect {} for feature '([^']+)' (?:after|during) [\w ]+?: Got {}"

KNOWN_ERRORS = (
    KnownError(
        "GIN12",
        # Here the binary's module has its own name, as it replaces __main__ only while gin parses.
        r"Couldn't resolve selector (\w+\.\w+); <module '(?:__main__|t5x\.(?:train|eval|infer))'"
        r".*?has no attribute (\w+)",
        "{1} is not part of the binary that this mode starts: it has no {2}",
        "run the config in the mode that it binds, or bind this mode's function",
    ),
    KnownError(
        "GIN14",
        r"Couldn't resolve selector (\S+); .*?has no attribute (\w+)",
        "{1} does not exist: its module has no {2}",
        "correct the name",
    ),
    KnownError(
        "GIN29",
        r"'(\w+)' was not provided by an import statement",
        "{1} is used and this file does not import it",
        "import it in this file: under dynamic registration what an include imports is its own",
    ),
    KnownError(
        "GIN13",
        r"Configurable '([^']+)' doesn't have a parameter named '([^']+)'",
        "{1} has no parameter {2}",
        "correct the parameter's name or remove the line",
    ),
    KnownError(
        "GIN15",
        r"No module named '([^']+)'",
        "module {1} cannot be imported",
        "put the folder that holds {1} on the Python path (python_path), or correct the import",
    ),
    KnownError(
        "GIN33",
        r"Unable to open file: gs://(.+?)\. Searched config paths",
        "Gin cannot open gs://{1}, nor anything else at gs://",
        "write /gcs/{1}, Vertex AI's mount of the bucket, or copy the file beside the job",
    ),
    KnownError(
        "GIN16",
        r"Unable to open file: (.+?)\. Searched config paths: (\[.*?\])",
        "the Gin file {1} is in none of {2}",
        "correct the path or add its folder to the search paths",
    ),
    KnownError(
        "GIN03",
        r"(?:([\w/.]+?)(?:/(?:gin\.)?macro\.value)? set to `%gin\.REQUIRED` but not subsequently overridden"
        r"|Required bindings for `([^`]+)` not provided in config: (\[.*?\]))",
        "a required value is missing: {1}{2} {3}",
        "bind it, in the file or with the run",
    ),
    KnownError(
        "GIN18",
        r"No bindings specified for '([^']+?)(?:/gin\.macro)?' in config string",
        "%{1} is used and nothing gives it a value",
        "bind {1} = ..., or include the file that does",
    ),
    KnownError(
        "GIN10",
        r"No configurable matching (?:reference )?'[@%]?([^'()\s]+)",
        "nothing that can be configured is called {1}",
        "import its module in this file, or correct the name",
    ),
    KnownError(
        "GIN22",
        r"Your Task/Mixture module contains gin configurables"
        r"|Attempted to add a new configurable after the config was locked",
        "the module named by MIXTURE_OR_TASK_MODULE registers Gin configurables after the config was parsed",
        "import the module in the Gin file and set MIXTURE_OR_TASK_MODULE = None",
    ),
    KnownError(
        "GIN26",
        r"Unknown factor '?([^\s'.]+)",
        "the learning rate schedule has a factor {1}, which T5X does not know",
        "use constant, linear_warmup, linear_decay, rsqrt_decay, rsqrt_normalized_decay, decay_every or cosine_decay",
    ),
    KnownError(
        "SEQ01",
        r"'([^']+)' does not exist in any of the task cache directories",
        "the cached examples of {1} are in none of the cache folders",
        "set USE_CACHED_TASKS = False, or name the cache folder",
    ),
    KnownError(
        "SEQ03",
        r"Task '([^']+)' requires caching, but was called with `use_cached=False`",
        "task {1} can only be read from a cache, and use_cached is False",
        "cache the task, or take the required placeholder out of its preprocessors",
    ),
    KnownError(
        "SEQ04",
        r"No Task or Mixture found with name '([^']*)'",
        "no task or mixture is called {1}",
        "import the module that registers it, or correct the name",
    ),
    KnownError(
        "SEQ05",
        r"Attempting to register duplicate provider: (\S+)",
        "{1} is registered twice",
        "register it once, or give the second one a name of its own",
    ),
    KnownError(
        "SEQ06",
        r"(?:Task dataset|Dataset) is missing (?:an )?expected (?:output )?feature (?:after|during) [\w ]+?: ?"
        r"'?([^'\n]*)'?",
        "the preprocessors leave no feature {1}, which the task declares as an output feature",
        "produce {1}, for instance by renaming the source's column",
    ),
    KnownError(
        "SEQ07",
        r"Mixture, '([^']+)' contains Tasks with different output features:\s*(\S+): (\([^)]*\))"
        r"(?:\s+\S+: \3)*\s+(\S+): (\([^)]*\))",
        "the tasks of mixture {1} do not all have the same output features: those of {2} are {3}, those of {4} {5}",
        "declare the same features for all tasks; one that some leave empty with required=False",
    ),
    KnownError(
        "SEQ07",
        r"datasets` must have compatible element specs.*?Dataset 0 element_spec=\{(.*?)\}\.\s+Dataset \d+ "
        r"element_spec=\{(.*?)\}\.(?:\s|$)",
        "the tasks of a mixture do not leave the same features: the first leaves {1}, and another one {2}",
        "let the preprocessors of each task leave the same features; what a task does not have can be empty",
    ),
    KnownError(
        "SEQ19",
        r"Task (\S+) has no splits",
        "task {1} has no splits, so that nothing of it can be read",
        "name the splits of its source, or take the task out of the mixture",
    ),
    KnownError(
        "SEQ37",
        r"None values not supported",
        "a preprocessor leaves None as the value of a feature, which TensorFlow does not have",
        "leave the feature out, or let it be empty text: ''",
    ),
    KnownError(
        "SEQ37",
        _WRONG_FEATURE.format("type", r"string, expected (\S+)"),
        "feature {1} is text after preprocessing, and its seqio.Feature declares {2}",
        "tokenize it: seqio.preprocessors.tokenize belongs in the task's preprocessors",
    ),
    KnownError(
        "SEQ37",
        _WRONG_FEATURE.format("type", r"int32, expected (\S+)"),
        "feature {1} is int32 after preprocessing, and its seqio.Feature declares {2}",
        "declare what it is: seqio.Feature(dtype=tf.int32), the default",
    ),
    KnownError(
        "SEQ37",
        _WRONG_FEATURE.format("type", r"(\S+), expected (\S+)"),
        "feature {1} is {2} after preprocessing, and its seqio.Feature declares {3}",
        "cast it in the preprocessors (tf.cast(…, tf.{3})), or declare Feature(dtype=tf.{2})",
    ),
    KnownError(
        "SEQ40",
        _WRONG_FEATURE.format("rank", r"(\S+), expected (\d+)"),
        "feature {1} has rank {2} after preprocessing, and its seqio.Feature declares rank {3}",
        "let the preprocessors give it rank {3} (a sequence of ids has rank 1), or declare Feature(rank={2})",
    ),
    KnownError(
        "SEQ09",
        r"Model and Task vocabularies do not match",
        "the model's vocabulary and the task's differ",
        "use the task's vocabulary (path and extra_ids) as the model's",
    ),
    KnownError(
        "SEQ15",
        r"The task_feature_lengths is missing features specified[^:]*: (\{.*?\})",
        "task_feature_lengths has no length for {1}",
        "give one length for each feature of the task",
    ),
    KnownError(
        "SEQ15",
        r"The task_feature_lengths contains extra features not specified[^:]*: (\{.*?\})",
        "task_feature_lengths has a length for {1}, which is not a feature of the task",
        "give one length for each feature of the task",
    ),
    KnownError(
        "SEQ30",
        r"Preprocessor '([^']+)' in task '([^']+)' has a `sequence_length` argument",
        "preprocessor {1} of task {2} needs the feature lengths, and they are None here",
        "give task_feature_lengths",
    ),
    KnownError(
        "SEQ31",
        r"TFDS name must contain a version number, got: ([\w./@-]+)",
        "the TFDS dataset {1} is named without a version",
        "name one, as in {1}:1.0.0",
    ),
    KnownError(
        "SEQ34",
        r"No file is found for the file pattern: ([^\n]+?)\.?(?:\n|$)",
        "no file matches {1}",
        "correct the pattern",
    ),
    KnownError(
        "SEQ28",
        r"Dataset has too few files to shard\. (\d+) files vs (\d+) shards requested",
        "the data has {1} files, and {2} shards of it are asked for",
        "write the data as at least {2} files",
    ),
    KnownError(
        "SEQ19",
        r"'([^']+)' has no metrics for evaluation, or this mixture/task doesn't have provided split"
        r"|there is nothing to evaluate: '([^']+)' has no metric_fns",
        "nothing of {1}{2} can be evaluated: it has no metric_fns, or not this split",
        "give the task metric_fns and a split that it has",
    ),
    KnownError(
        "SEQ23",
        r"Metric functions must have positional arguments matching .*Got: (\(.*?\))",
        "a metric function has the positional arguments {1}, from which SeqIO cannot tell what to call it with",
        "name them (targets, predictions), (targets, scores) or (targets, predictions, aux_values), in this order",
    ),
    KnownError(
        "MSH02",
        r"Batch size \((\d+)\) must be divisible by corresponding data mesh size \((\d+)\)"
        r"|Batch size (\d+) is not a multiple of (\d+), the data parallelism of the mesh",
        "batch size {1}{3} is not divisible by the mesh's data axis, {2}{4}",
        "use a multiple of {2}{4}",
    ),
    KnownError(
        "MSH02",
        r"Batch size \((\d+)\) must be divisible by (?:the )?number of (?:data )?shards \((\d+)\)"
        r"|Batch size (\d+) is not a multiple of (\d+), the shards",
        "batch size {1}{3} is not divisible by the number of data shards, {2}{4}",
        "use a multiple of {2}{4}",
    ),
    KnownError(
        "MSH11",
        r"Batch size isn't divided evenly by num_microbatches"
        r"|num_microbatches \(\d+\) does not divide the batch size",
        "the batch size is not divisible by num_microbatches",
        "make BATCH_SIZE a multiple of trainer.Trainer.num_microbatches",
    ),
    KnownError(
        "MSH12",
        r"Checkpoint period \((\w+)\), eval period \((\w+)\), and GC period \((\w+)\) must all be multiples",
        "checkpoint period {1}, eval period {2} and gc period {3} do not fit: the smallest must divide the rest",
        "make the larger periods multiples of the smallest",
    ),
    KnownError(
        "MSH12",
        r"([\w.]+ \(\d+\)) must be a multiple of the shortest period, ([\w.]+ \(\d+\))",
        "{1} and {2} do not fit: the smallest period must divide the rest",
        "make the larger periods multiples of the smallest",
    ),
    *CHECKPOINT_ERRORS,
    KnownError(
        "INF03",
        r"No chunk results found|there are no results to write to|There is nothing to infer: the dataset has no",
        "inference wrote no prediction: its input has no examples",
        "choose a split with examples",
    ),
    KnownError(
        "INF04",
        r"`mode` must be one of .*predict_with_aux.*Got '([^']+)'"
        r"|(?:infer\.mode|the mode) must be one of .*predict_with_aux.* not '([^']+)'",
        "infer mode {1}{2} does not exist",
        "use predict, score or predict_with_aux",
    ),
    KnownError(
        "INF05",
        r"infer\.output_vocab_feature_name is '([^']+)', but task '([^']+)' has the output features ([^\n]+)",
        "task {2} has no output feature {1}, whose vocabulary is to decode the predictions; it has {3}",
        "bind infer.output_vocab_feature_name to one of them",
    ),
)
"""The known errors of gin, data and runs; the first match wins."""


def reword(texts: Sequence[str]) -> KnownError | None:
    """Finds the known error that matches an exception's text or the text of one of its causes; None if none does."""
    for known in KNOWN_ERRORS:
        for text in texts:
            if match := re.search(known.pattern, text, re.DOTALL):
                groups = ["", *(group or "" for group in match.groups())]
                message = " ".join(known.message.format(*groups).split())
                return dataclasses.replace(known, message=message, fix=known.fix.format(*groups))
    return None
