"""The exception texts that the failure catalog knows, each with its code, its meaning and the fix.

They are from gin 0.5, SeqIO 0.0.20, T5X at cc342d4, and the embedded T5X if it words a refusal differently.
"""

import dataclasses
import re
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class KnownError:
    """A pattern of exception texts, and the message to show instead.

    Attributes:
      code: the code of the broken rule.
      pattern: a regular expression; the first one in the table that matches a text wins.
      message: what is wrong; ``{1}`` stands for the pattern's first group.
      fix: the fix, written the same way.
    """

    code: str
    pattern: str
    message: str
    fix: str


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
    KnownError(
        "CKP01",
        r"Unexpected total_steps \((\d+)\) < checkpoint step\s+\((\d+)\)"
        r"|train\.total_steps \((\d+)\) is less than the step of the checkpoint \((\d+)\)",
        "TRAIN_STEPS is {1}{3}, and the checkpoint to start from is already at step {2}{4}",
        "TRAIN_STEPS counts from zero: give {2}{4} plus the steps to train",
    ),
    KnownError(
        "CKP12",
        # The wording of Python, which comes through orbax, and the wording of TensorFlow.
        r"Too many open files: '(/gcs/([^']+?)/checkpoint_\d+[^']*)' -> '/gcs/"
        r"|(/gcs/(\S+?)/checkpoint_\d+\S*); Too many open files",
        "the checkpoint cannot be finished: Cloud Storage FUSE renames no folder that holds anything, here {1}{3}",
        "write gs://{2}{4} in the place of /gcs/{2}{4}",
    ),
    KnownError(
        "CKP07",
        r"lacks \d+ of the model's leaves:\n  state/param_states/"
        r"|not present in state dict at path \./state/param_states",
        "the checkpoint to start from holds the state of another optimizer than the config's",
        "keep the optimizer that the checkpoint was written with (T5's published models: Adafactor), or restore the "
        "parameters alone: RestoreCheckpointConfig.assignment_map = [('.*param_states.*', None)] and "
        "fallback_to_scratch = True",
    ),
    KnownError(
        "RUN01",
        r"PyFunc is stateful",
        "the position in the data cannot be saved: a source of it is a Python function or generator, whose state "
        "TensorFlow does not know",
        "bind utils.SaveCheckpointConfig.save_dataset = False, or read from files or from a cache",
    ),
    KnownError(
        "CKP31",
        r"Metadata file \(named _METADATA\) does not exist at ((?:gs:/|/gcs)/\S+?)/state\b"
        r"|Found incomplete checkpoint at (\S+?)\.?(?:\s|$)",
        "orbax takes {1}{2} for unfinished, as it has no commit_success.txt, and removes it if it is in MODEL_DIR",
        "if it was written to its end and copied by hand, copy it again with this file; else restore an older one",
    ),
    KnownError(
        "CKP31",
        r"((?:gs:/|/gcs)/\S+?/checkpoint_\d+) is not a checkpoint: it has no folder 'state'",
        "orbax removed {1} as unfinished, or its arrays while another job saved it",
        "start again, and T5X goes on from the one before; if {1} is still there, move it out of the folder first",
    ),
    KnownError(
        "CKP27",
        # The embedded T5X's words, and T5X's own, which are only the folder.
        r"^(/\S+?/checkpoint_\d+)(?:/state$| is not a checkpoint: it has no folder 'state')",
        "the checkpoint {1} was not written to its end: it has no folder 'state'",
        "restore another one, or move it away: T5X then takes the one before",
    ),
    KnownError(
        "CKP27",
        r"(?:DATA_LOSS|OUT_OF_RANGE|NOT_FOUND): .*?OCDBT database at (?:local file \")?(\S+/checkpoint_\d+)/state/"
        r"[^:]*: Error (?:decoding|reading) .*?: (.*?)(?: \[tensorstore|$)",
        "the checkpoint {1} is damaged: {2}",
        "copy it again from where it was written, or move it away: T5X then restores the one before",
    ),
    KnownError(
        "RUN01",
        r"Error writing \S+ in OCDBT database at (\S+?/checkpoint_\d+)/\S*: Non-unique file id",
        "{1} could not be saved: an upload was refused (412), as if another job had written the file",
        "start the job again: it goes on from the checkpoint before",
    ),
    KnownError(
        "CKP32",
        r"NOT_FOUND: .*?Error reading Byte range \[[\d, ]+\) of (gs://\S+?/checkpoint_\d+)/(state/\S+)",
        "the checkpoint {1} has no {2}: it was removed while it was restored, or copied without this file",
        "raise utils.SaveCheckpointConfig.keep, evaluate with `t5x-harness auxiliary`, or copy the checkpoint again",
    ),
    KnownError(
        "CKP32",
        r"No such object: (\S+?/checkpoint_\d+)/state/|NOT_FOUND: Error reading gs://(\S+?/checkpoint_\d+)/state/",
        "the checkpoint gs://{1}{2} was removed while it was restored",
        "raise utils.SaveCheckpointConfig.keep, or let `t5x-harness auxiliary` evaluate: it holds each checkpoint",
    ),
    KnownError(
        "RUN01",
        r"EOF reached\. Requested to read \d+ bytes from \d+",
        "a saved position in the data cannot be read: its file is cut off, or an inference was killed when T5X had "
        "renamed one of its two files, input.ckpt.*, and not the other",
        "remove input.ckpt.* from the folder tmp-* of the output, and the inference begins anew",
    ),
    KnownError(
        "CKP16",
        r"(?:of the input pipeline: |matching files for )(\S+?/checkpoint_\d+)/dataset/(?:process_\S+?/)?"
        r"train_ds-0*(\d+)-of-0*(\d+)\b",
        "{1} has no position in the data for host {2} of {3}: other hosts saved it, or save_dataset was off",
        "go on with the hosts that saved it, or set utils.SaveCheckpointConfig.save_dataset = False: data begins anew",
    ),
    KnownError(
        "RUN01",
        # The wordings of tensorstore, Python and TensorFlow. A quota may be on the folder alone.
        r"Error writing local file \"([^\"]+)\".*(No space left on device|Disk quota exceeded|File too large)"
        r"|(No space left on device|Disk quota exceeded|File too large): '([^']+)'"
        r"|(/[^\s;]+); (No space left on device|Disk quota exceeded|File too large)",
        "no space left on the disk of {1}{4}{5}: {2}{3}{6}",
        "make room there, or choose another disk: --model_dir for what the run writes, TMPDIR for the rest",
    ),
    KnownError(
        "RUN01",
        r"(Read-only file system|Permission denied|Operation not permitted): '([^']+)'"
        r"|(/[^\s;]+); (Read-only file system|Permission denied|Operation not permitted)",
        "{2}{3} cannot be used: {1}{4}",
        "choose a folder in which the run may write (MODEL_DIR, --model_dir), or change its permissions",
    ),
    KnownError(
        "RUN10",
        r"cannot import name 'storage' from 'google\.cloud'|No module named 'google\.cloud(?:\.storage)?'",
        "orbax looks for checkpoints at gs:// with google-cloud-storage, which is not installed",
        "python -m pip install google-cloud-storage, in the image of the job, too",
    ),
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
