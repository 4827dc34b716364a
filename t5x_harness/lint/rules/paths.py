"""CKP11, CKP12, CKP25, GCS03, GCS08, GCS10 and GCS11: names of output folders and checkpoints."""

import re
import unicodedata
from collections.abc import Iterator

from t5x_harness.buckets.addresses import bucket_fault
from t5x_harness.findings.rule import Example, Found, Rule, run_head
from t5x_harness.gin.values import format_value
from t5x_harness.lint.rule import Context, ParameterValue, restore_config, run_function, save_config
from t5x_harness.spec import Mode, Severity

_HEAD = run_head("pretrain")
_FINETUNE = run_head("finetune")


def _output(context: Context) -> ParameterValue | None:
    """Returns the folder that the run writes into."""
    folder = run_function(context).parameter("model_dir" if context.program.mode is Mode.TRAIN else "output_dir", str)
    return folder if folder is not None and folder.value else None


def _checkpoint(context: Context) -> ParameterValue | None:
    """Returns the path of the run's initial checkpoint, or of the folder of checkpoints that it begins with."""
    path = restore_config(context).parameter("path", str)
    return path if path is not None and path.value else None


def _shown(given: ParameterValue) -> str:
    return f"{given.at} = {format_value(given.value)}"


def _is_relative(path: str) -> bool:
    return not path.startswith("/") and "://" not in path


@Rule(
    "CKP11",
    "relative path for checkpoints",
    why=(
        "Orbax refuses relative paths: `Checkpoint path should be absolute. Got …`, at the first save or at the "
        "restore, when the job has been running for a while. So does tensorstore, which reads T5X's older layout."
    ),
    bad=Example(_HEAD + "MODEL_DIR = './runs/first'\n", at="MODEL_DIR"),
    good=Example(_HEAD + "MODEL_DIR = '/data/runs/first'\n"),
)
def relative_path(context: Context) -> Iterator[Found]:
    """Finds relative folders; TensorFlow's checkpoints, which TensorFlow reads, are only a warning."""
    output = _output(context)
    save = save_config(context)
    if output is not None and save is not None and save.value("period") and _is_relative(output.value):
        yield Found(f"checkpoints cannot be saved in the relative path {_shown(output)}", output.at, _ABSOLUTE)
    checkpoint = _checkpoint(context)
    if checkpoint is not None and _is_relative(checkpoint.value):
        yield Found(
            f"the checkpoint's path is relative: {_shown(checkpoint)}",
            checkpoint.at,
            _ABSOLUTE,
            severity=Severity.WARNING if "ckpt" in checkpoint.value else None,
        )


_ABSOLUTE = "write the whole path, from / or gs:// on"


@Rule(
    "CKP12",
    "checkpoints saved through /gcs/",
    severity=Severity.WARNING,
    why=(
        "A mounted bucket has no file locks and renames no folder that holds anything, which checkpoints on a file "
        "system rely on: `Failed to acquire lock on file`, `Too many open files`. With gs:// they go through the API "
        "of Cloud Storage. Runs here find a plain folder at /gcs, where saving works; with `--gcs=fuse` it fails as "
        "there."
    ),
    bad=Example(_HEAD + "MODEL_DIR = '/gcs/bucket/run'\n", at="MODEL_DIR"),
    good=Example(_HEAD + "MODEL_DIR = 'gs://bucket/run'\n"),
)
def mounted_bucket(context: Context) -> Iterator[Found]:
    """Finds checkpoints written through a mounted bucket."""
    output = _output(context)
    if output is not None and save_config(context) is not None and output.value.startswith("/gcs/"):
        yield Found(f"checkpoints would be saved through a mounted bucket: {_shown(output)}", output.at, _as_gs(output))


def _as_gs(given: ParameterValue) -> str:
    return f"write {given.at} = {format_value('gs://' + given.value.removeprefix('/gcs/'), limit=200)}"


@Rule(
    "GCS03",
    "bucket named both /gcs/ and gs://",
    severity=Severity.WARNING,
    why=(
        "/gcs/ is there only where Vertex AI mounts buckets, and gs:// only where the client can log in: a config that "
        "mixes them works in fewer places than either."
    ),
    bad=Example(
        _FINETUNE + "MODEL_DIR = 'gs://bucket/run'\nINITIAL_CHECKPOINT_PATH = '/gcs/bucket/t5/checkpoint_1000'\n",
        at="INITIAL_CHECKPOINT_PATH",
    ),
    good=Example(
        _FINETUNE + "MODEL_DIR = 'gs://bucket/run'\nINITIAL_CHECKPOINT_PATH = 'gs://bucket/t5/checkpoint_1000'\n"
    ),
)
def two_forms(context: Context) -> Iterator[Found]:
    """Finds a bucket that is used under both of its names; the finding is at the name that begins with /gcs/."""
    output, checkpoint = _output(context), _checkpoint(context)
    for mounted, other in ((output, checkpoint), (checkpoint, output)):
        if mounted is None or other is None:
            continue
        bucket = re.match(r"/gcs/([^/]+)", mounted.value)
        if bucket is not None and re.match(rf"gs://{re.escape(bucket[1])}(/|$)", other.value):
            yield Found(
                f"{_shown(mounted)} and {_shown(other)} name the bucket {bucket[1]} in two ways",
                mounted.at,
                _as_gs(mounted),
            )


@Rule(
    "GCS08",
    "double slash in a gs:// path",
    severity=Severity.WARNING,
    why=(
        "In Cloud Storage `gs://b//x` is another folder than `gs://b/x`. T5X's infer takes the second slash out of its "
        "output folder and train and evaluate do not, so one job does not find what the other wrote."
    ),
    bad=Example(_HEAD + "MODEL_DIR = 'gs://bucket//run'\n", at="MODEL_DIR"),
    good=Example(_HEAD + "MODEL_DIR = 'gs://bucket/run'\n"),
)
def double_slash(context: Context) -> Iterator[Found]:
    """Finds each path at gs:// with an empty part."""
    output = None if context.program.mode is Mode.INFER else _output(context)
    for given in (output, _checkpoint(context)):
        if given is not None and given.value.startswith("gs://") and "//" in given.value.removeprefix("gs://"):
            fixed = "gs://" + re.sub("/{2,}", "/", given.value.removeprefix("gs://")).lstrip("/")
            yield Found(
                f"{_shown(given)} has a double slash, which makes another folder",
                given.at,
                f"write {given.at} = {format_value(fixed, limit=200)}",
            )


@Rule(
    "GCS10",
    "bucket name that Cloud Storage does not allow",
    why=(
        "There is no such bucket and none can be made. TensorFlow, which T5X makes MODEL_DIR with, asks for a bucket "
        "that is not there again and again and says nothing: the job hangs before its first step."
    ),
    bad=Example(_HEAD + "MODEL_DIR = 'gs://My_Bucket/run'\n", at="MODEL_DIR"),
    good=Example(_HEAD + "MODEL_DIR = 'gs://my_bucket/run'\n"),
)
def bucket_name(context: Context) -> Iterator[Found]:
    """Finds a bucket name that Cloud Storage refuses, in a path to which the run writes or from which it restores."""
    for given, faulty in ((_output(context), ""), (_checkpoint(context), r"[^a-z0-9._-]")):
        bucket = re.match("gs:/{2,}([^/]*)", given.value) if given is not None else None
        if given is None or bucket is None or not re.search(faulty, bucket[1]):
            continue
        if fault := bucket_fault(bucket[1]):
            yield Found(
                f"{_shown(given)} is in a bucket whose name Cloud Storage refuses: {fault}",
                given.at,
                "name a bucket of yours",
            )


@Rule(
    "GCS11",
    "path that holds a variable, backslashes, quotes, or what does not show",
    severity=Severity.WARNING,
    why=(
        "Gin and T5X expand nothing: the run silently writes into a folder that is called `$USER` or `~`, and "
        "finds no checkpoint in it. A backslash, a quote or a space is a character of a name like any other, and so is "
        "one that does not show."
    ),
    bad=Example(_HEAD + "MODEL_DIR = '/data/$USER/run'\n", at="MODEL_DIR"),
    good=Example(_HEAD + "MODEL_DIR = '/data/me/run'\n"),
)
def taken_literally(context: Context) -> Iterator[Found]:
    """Finds each path with text that nothing expands, or with invisible characters."""
    for given in (_output(context), _checkpoint(context)):
        literal = _taken_literally(given.value) if given is not None else None
        if given is not None and literal is not None:
            what, fix = literal
            yield Found(f"{_shown(given)} {what}", given.at, fix.replace("NAME", str(given.at)))


_EXPANDED = re.compile(r"\$\{?\w+\}?|%[A-Z_]+%|^~[^/]*|\{\w*\}|<[\w -]+>")


def _taken_literally(path: str) -> tuple[str, str] | None:
    """Returns the text in a path that is not meant as part of a name, and the fix; None if there is none."""
    if (found := _EXPANDED.search(path)) is not None:
        return (
            f"has {found[0]} in it, which is taken as it stands: nothing expands it",
            "write the path in full, or give it when the run starts: --gin.NAME=\"'…'\"",
        )
    if "\\" in path:
        return "has a backslash in it, which separates no folders", "write / between folders"
    if path[0] in _QUOTES or path[-1] in _QUOTES:
        return "has quotes in it, which become a part of the name", "write one pair of quotes"
    if (hidden := next((c for c in path if unicodedata.category(c) in _HIDDEN and c != " "), None)) is not None:
        name = unicodedata.name(hidden, "a control character")
        return f"has U+{ord(hidden):04X} ({name}) in it, which does not show and is a part of the name", "take it out"
    if path != path.strip():
        return "begins or ends with a space, which becomes a part of the name", "take the space out"
    if path.startswith(("https://", "http://")):
        return "is an address of the Web, where T5X opens no files", "write gs://, the bucket and the name in it"
    return None


_QUOTES = frozenset("'\"`\u2018\u2019\u201c\u201d")
_HIDDEN = frozenset({"Cc", "Cf", "Zs", "Zl", "Zp"})  # categories of Unicode: controls, formats and separators


@Rule(
    "CKP25",
    "MODEL_DIR inside a checkpoint",
    severity=Severity.WARNING,
    why=(
        "A checkpoint is one folder, checkpoint_N, and MODEL_DIR the folder of all of a run. T5X finds no checkpoint "
        "to go on from in it, silently starts anew, and writes its own checkpoints and logs among the old "
        "one's arrays."
    ),
    bad=Example(_HEAD + "MODEL_DIR = 'gs://bucket/run/checkpoint_1000'\n", at="MODEL_DIR"),
    good=Example(_HEAD + "MODEL_DIR = 'gs://bucket/run'\n"),
)
def inside_checkpoint(context: Context) -> Iterator[Found]:
    """Finds training that would write into a checkpoint."""
    output = _output(context) if context.program.mode is Mode.TRAIN else None
    inside = re.search(r"^(.*?)/checkpoint_\d+(/|$)", output.value) if output is not None else None
    if output is not None and inside is not None:
        yield Found(
            f"{_shown(output)} is in a checkpoint: T5X goes on from nothing there, and writes its own into it",
            output.at,
            f"name the folder of the run, such as {inside[1]!r}, to go on with it, or a new one",
        )
