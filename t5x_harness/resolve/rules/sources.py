"""SEQ01 to SEQ04, SEQ31, SEQ32, SEQ34 and SEQ36: tasks, TFDS datasets, files, caches and examples that are missing."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.findings.rule import FOLDER, TASK, Found, Rule, task_files, training
from t5x_harness.spec import Severity

if TYPE_CHECKING:
    import seqio

    from t5x_harness.gin.config import BindingKey
    from t5x_harness.resolve.datasets import DataRole
    from t5x_harness.resolve.resolved import Resolved
    from t5x_harness.resolve.samples import Sample

_MANY = "'inputs': ['one two', 'three'] * 64, 'targets': ['1 2', '3'] * 64"
_TWO = "'inputs': ['one two', 'three'], 'targets': ['1 2', '3']"
_COUNTED = "splits=('train', 'validation'), num_input_examples={'train': 128, 'validation': 128}"
_HALF = 0.5
"""The share of a source's declared number of examples below which it can hardly be the same data."""

_SOURCE = "seqio.FunctionDataSource(examples, splits=('train', 'validation'))"
_PLACEHOLDER = (
    "[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos]",
    "[seqio.preprocessors.tokenize, seqio.CacheDatasetPlaceholder(), seqio.preprocessors.append_eos]",
)
_REQUIRED = (_PLACEHOLDER[0], _PLACEHOLDER[1].replace("Placeholder()", "Placeholder(required=True)"))


@Rule(
    "SEQ04",
    "task or mixture that nothing registered",
    why="SeqIO raises on the TPU and lists every task it knows; the module was not imported, or the name is misspelt.",
    bad=training("MIXTURE_OR_TASK_NAME = 'countign'", at="MIXTURE_OR_TASK_NAME = 'countign'"),
    good=training("MIXTURE_OR_TASK_NAME = 'counting'"),
)
def unknown_task(run: Resolved) -> Iterator[Found]:
    """Finds each name that is not registered; datasets that share the name share the finding."""
    import seqio

    names = sorted(map(str, {*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()}))
    said = set()
    for role in run.roles:
        if role.parameter in run.tasks or role.source in said:
            continue
        said.add(role.source)
        close = difflib.get_close_matches(role.source, names, n=3, cutoff=0.6)
        yield Found(
            f"no task or mixture is called {role.source!r}; {len(names)} are registered"
            + (f", the closest {', '.join(map(repr, close))}" if close else ""),
            role.key(run.config, "mixture_or_task_name"),
            f"use {close[0]!r}" if close else "import the module that registers it in the Gin file",
        )


@Rule(
    "SEQ36",
    "split with no example, or with fewer than it says or than fill one batch",
    why=(
        "A wrong file pattern or a filter that drops everything trains on nothing, or on the few examples that are "
        "left, over and over: T5X repeats them until the batch is full."
    ),
    bad=training(
        files=task_files(f"{{{_TWO}}})", f"{{{_TWO}}}).filter(lambda x: False)"), at="seqio.TaskRegistry.add("
    ),
    good=training(files={"counting.py": TASK.replace(_TWO, _MANY).replace("splits=('train', 'validation')", _COUNTED)}),
)
def no_examples(run: Resolved) -> Iterator[Found]:
    """Finds splits without examples (an error), or with far fewer than anyone would train on (a warning)."""
    said = set()
    for role, sample in run.sampled():
        where = (sample.task.name, sample.split)
        if where not in said and (few := _too_few(run, role, sample)):
            said.add(where)
            problem, fix, severity = few
            key = role.key(run.config, "split")
            # If the user did not choose the split, the source is at fault.
            place = None if run.config.is_of_user(key) else run.registrations.place(sample.task.name)
            yield Found(problem, key, fix, severity=severity, location=place)


def _too_few(run: Resolved, role: DataRole, sample: Sample) -> tuple[str, str, Severity] | None:
    """Returns what is wrong with the number of examples, the fix, and how bad it is; None if nothing is."""
    from t5x_harness.resolve.pipeline import CHECK_SOURCE, of_nothing
    from t5x_harness.resolve.samples import SOURCE_EXAMPLES
    from t5x_harness.standins.sources import cache_of, declared_size

    task, split, count = sample.task, sample.split, sample.count
    if sample.late or (count and run.standins.source_of(task)):
        return None
    if not count:
        among = "" if sample.ended else f" among the first {SOURCE_EXAMPLES:,} of its source"
        problem = f"task {task.name} has no example in split {split!r}{among}"
        if role.dataset.use_cached and (cache := cache_of(task)):
            fix = "cache it again: t5x-harness cache names the splits without examples, or set use_cached = False"
            return f"{problem} of its cache, {cache}", fix, Severity.ERROR
        if sample.source_size:
            problem += f": its preprocessors drop all {sample.source_size:,} of its source"
            return problem, CHECK_SOURCE, Severity.ERROR
        giver, fix = of_nothing(task) if sample.source_size == 0 else ("", CHECK_SOURCE)
        return f"{problem}{giver}", fix, Severity.ERROR
    declared = None if role.dataset.use_cached else declared_size(task, split)
    problem = f"split {split!r} of task {task.name} "
    if declared and sample.source_size is not None and sample.source_size < _HALF * declared:
        problem += f"says to have {declared:,} examples (num_input_examples), and its source has {sample.source_size:,}"
        return problem, "check the source's files, or correct num_input_examples", Severity.WARNING
    batch = role.dataset.batch_size
    if role.name == "train" and sample.ended and isinstance(batch, int) and count < batch:
        few = f"{count} example{'s' if count > 1 else ''} in all, less than one batch of {batch}"
        # A user who declares the number of examples, and correctly, knows how few they are.
        severity = Severity.NOTE if declared else Severity.WARNING
        return f"{problem}has {few}: every step trains on the same ones", CHECK_SOURCE, severity
    return None


def _tfds(version: str, folder: str) -> dict[str, str]:
    """Returns the example's task on its own TFDS builder, ``one_row``, which importing it prepares as version 1.0.0."""
    text = TASK.replace(_SOURCE, f"seqio.TfdsDataSource('one_row:{version}', tfds_data_dir='{folder}')")
    return {"counting.py": text.replace("\n\nFEATURE", _BUILDER, 1)}


_BUILDER = f"""

import tensorflow_datasets as tfds


class OneRow(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version('1.0.0')

    def _info(self):
        features = tfds.features.FeaturesDict({{'inputs': tf.string, 'targets': tf.string}})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager):
        return {{split: [(0, {{'inputs': 'one two', 'targets': '1 2'}})] for split in ('train', 'validation')}}

    def _generate_examples(self):
        return ()


OneRow(data_dir='{FOLDER}/prepared').download_and_prepare()

FEATURE"""


def _of_tfds(run: Resolved, *, can_be_prepared: bool, says: str, fix: str) -> Iterator[Found]:
    """Yields the problems of the tasks' TFDS datasets, located at the lines that register the tasks."""
    from t5x_harness.resolve.datasets import tfds_problem

    for role, task in run.reads():
        problem = tfds_problem(task, role.dataset.split)
        if problem and problem.can_be_prepared is can_be_prepared:
            message = f"task {task.name} reads {problem.name}, which {says.format(problem.detail)}"
            yield Found(message, None, fix, location=run.registrations.place(task.name))


@Rule(
    "SEQ31",
    "TFDS dataset or version that the installed TFDS does not have",
    why=(
        "TFDS drops old versions of its datasets: T5X's own pretraining example names c4/en/2.2.0, which `is too old "
        "for this version of TFDS so cannot be generated`."
    ),
    bad=training(files=_tfds("0.9.0", f"{FOLDER}/prepared"), at="seqio.TaskRegistry.add("),
    good=training(files=_tfds("1.0.0", f"{FOLDER}/prepared")),
)
def no_such_tfds_version(run: Resolved) -> Iterator[Found]:
    """Finds each TFDS dataset whose name or version the installed TFDS does not have."""
    says = "the installed TFDS does not have: {}"
    fix = "name a version that it has, or the folder with data that was prepared before: --tfds_data_dir=gs://bucket/folder"
    yield from _of_tfds(run, can_be_prepared=False, says=says, fix=fix)


@Rule(
    "SEQ32",
    "TFDS dataset that is not prepared",
    why=(
        "T5X lets TFDS download and prepare what it does not find, on the hosts of a TPU that waits: for hours, or "
        "until it fails."
    ),
    bad=training(files=_tfds("1.0.0", f"{FOLDER}/elsewhere"), at="seqio.TaskRegistry.add("),
    good=training(files=_tfds("1.0.0", f"{FOLDER}/prepared")),
)
def not_prepared(run: Resolved) -> Iterator[Found]:
    """Finds each TFDS dataset that is not prepared."""
    says = "is not prepared in {}: the job would download and prepare it"
    fix = "give the folder that has it with --tfds_data_dir, or prepare it there first"
    yield from _of_tfds(run, can_be_prepared=True, says=says, fix=fix)


@Rule(
    "SEQ34",
    "file pattern that matches no file",
    why="SeqIO stops the job with `No file is found for the file pattern` once the TPU is there.",
    bad=training(
        files=task_files(_SOURCE, f"seqio.TextLineDataSource({{'train': '{FOLDER}/trian-*.txt'}})"),
        at="seqio.TaskRegistry.add(",
    ),
    good=training(
        files={
            "train.txt": "one two\t1 2\nthree\t3\n",
            **task_files(
                f"{_SOURCE},\n    preprocessors=[",
                f"seqio.TextLineDataSource({{'train': '{FOLDER}/train*.txt'}}),\n    preprocessors=[\n"
                "        lambda lines: lines.map(lambda x: dict(zip(('inputs', 'targets'), "
                "tf.unstack(tf.strings.split(x, '\\t'), 2)))), ",
            ),
        }
    ),
)
def no_files(run: Resolved) -> Iterator[Found]:
    """Finds each split whose file pattern matches nothing, for tasks whose files this machine can see."""
    from t5x_harness.standins.sources import files_of, out_of_reach, patterns_of

    for role, task in run.reads():
        split = role.dataset.split
        if files_of(task, split) == [] and not out_of_reach(task, split):
            shown = ", ".join(patterns_of(task, split)) or "nothing"
            message = f"task {task.name} reads its split {split!r} from {shown}, which matches no file"
            yield Found(message, None, "correct the pattern", location=run.registrations.place(task.name))


def _cached(run: Resolved, wanted: bool) -> Iterator[tuple[seqio.Task, BindingKey | None, str]]:
    """Yields each task that is (or is not) to be read from its cache, the binding that says so, and its name."""
    for role, task in run.reads():
        if bool(role.dataset.use_cached) is wanted:
            key = role.key(run.config, "use_cached")
            yield task, key, key.short if key else "use_cached"


@Rule(
    "SEQ01",
    "cached examples asked for that are in no cache folder",
    why=(
        "`USE_CACHED_TASKS = True` is what T5X's run configs say by default; SeqIO stops the job with `does not exist "
        "in any of the task cache directories`."
    ),
    bad=training("USE_CACHED_TASKS = True", files=task_files(*_PLACEHOLDER), at="USE_CACHED_TASKS = True"),
    good=training("USE_CACHED_TASKS = False", files=task_files(*_PLACEHOLDER)),
)
def missing_cache(run: Resolved) -> Iterator[Found]:
    """Finds each task that is to be read from its cache but whose cache does not exist."""
    import seqio

    from t5x_harness.standins.sources import cache_of

    folders = [str(folder) for folder in seqio.get_global_cache_dirs()]
    if any("://" in folder for folder in folders):
        return  # the code that reads the data reports it as not checked
    searched = f"none of {', '.join(folders)} has them" if folders else "no cache folder is set"
    for task, key, name in _cached(run, True):
        if task.supports_caching and cache_of(task) is None:
            yield Found(
                f"use_cached is True, and the examples of task {task.name} are not cached: {searched}",
                key,
                f"set {name} = False, or cache the task (t5x-harness cache, seqio_cache_tasks) and name "
                "the folder where the task is registered: seqio.add_global_cache_dirs(['FOLDER'])",
            )


@Rule(
    "SEQ02",
    "cached examples asked for of a task that cannot be cached",
    severity=Severity.WARNING,
    why=(
        "Without a `CacheDatasetPlaceholder` in the task SeqIO drops `use_cached` with a line in the log: every host "
        "preprocesses while the TPU waits."
    ),
    bad=training("USE_CACHED_TASKS = True", at="USE_CACHED_TASKS = True"),
    good=training("USE_CACHED_TASKS = False"),
)
def ignored_cache(run: Resolved) -> Iterator[Found]:
    """Finds each task that is to be read from a cache but does not support one."""
    for task, key, name in _cached(run, True):
        if not task.supports_caching:
            yield Found(
                f"use_cached is True, and task {task.name} has no CacheDatasetPlaceholder among its "
                "preprocessors: SeqIO preprocesses its source on the fly all the same",
                key,
                f"set {name} = False if that is meant, or put the placeholder into the task and cache it",
            )


@Rule(
    "SEQ03",
    "task that needs its cache, read without it",
    why="SeqIO refuses to preprocess a task on the fly whose `CacheDatasetPlaceholder` has `required=True`.",
    bad=training(files=task_files(*_REQUIRED), at="USE_CACHED_TASKS"),
    good=training(files=task_files(*_PLACEHOLDER)),
)
def needed_cache(run: Resolved) -> Iterator[Found]:
    """Finds each task that can only be read from a cache."""
    for task, key, name in _cached(run, False):
        if task.requires_caching:
            yield Found(
                f"task {task.name} can only be read from a cache (its CacheDatasetPlaceholder has required=True), "
                "and use_cached is False",
                key,
                f"set {name} = True and cache the task, or take required=True out of the task",
            )
