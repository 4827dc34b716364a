"""The exception texts about checkpoints, positions in the data and full disks; known_errors.py has the others."""

from t5x_harness.resolve.known_error import KnownError

CHECKPOINT_ERRORS = (
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
)
