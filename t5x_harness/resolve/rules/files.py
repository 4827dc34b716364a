"""SEQ31, SEQ32 and SEQ34: TFDS datasets and files that are not there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.findings import examples
from t5x_harness.findings.examples import training
from t5x_harness.findings.rule import Found, Mistake
from t5x_harness.resolve.rule import finds

if TYPE_CHECKING:
    import seqio

    from t5x_harness.resolve.resolved import Resolved
    from t5x_harness.resolve.tfds_state import TfdsProblem

_SOURCE = "seqio.FunctionDataSource(examples, splits=('train', 'validation'))"


def _tfds(version: str, folder: str) -> dict[str, str]:
    """Returns the example's task on a TFDS builder of its own, ``one_row``, prepared by its import as 1.0.0."""
    text = examples.TASK.replace(_SOURCE, f"seqio.TfdsDataSource('one_row:{version}', tfds_data_dir='{folder}')")
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


OneRow(data_dir='{examples.FOLDER}/prepared').download_and_prepare()

FEATURE"""


def _tasks(run: Resolved) -> Iterator[tuple[seqio.Task, str]]:
    """Returns every task with a split that the run asks of it, each once."""
    asked = ((task, role.dataset.split) for role, task in run.reads())
    return iter({(task.name, split): (task, split) for task, split in asked}.values())


def _tfds_problems(run: Resolved, *, can_be_prepared: bool) -> Iterator[tuple[seqio.Task, TfdsProblem]]:
    from t5x_harness.resolve.tfds_state import tfds_problem

    said = set()
    for task, split in _tasks(run):
        problem = tfds_problem(task, split)
        if problem and problem.can_be_prepared is can_be_prepared and (task.name, problem) not in said:
            said.add((task.name, problem))
            yield task, problem


def _of_task(run: Resolved, task: seqio.Task, message: str, fix: str) -> Found:
    """Returns what was found at the line that registered a task."""
    return Found(message, None, fix, location=run.registrations.place(task.name))


SEQ31 = Mistake(
    "SEQ31",
    "TFDS dataset or version that the installed TFDS does not have",
    why=(
        "TFDS drops old versions of its datasets: T5X's own pretraining example names c4/en/2.2.0, which `is too old "
        "for this version of TFDS so cannot be generated`."
    ),
    bad=training(files=_tfds("0.9.0", f"{examples.FOLDER}/prepared"), at="seqio.TaskRegistry.add("),
    good=training(files=_tfds("1.0.0", f"{examples.FOLDER}/prepared")),
)


@finds(SEQ31)
def no_such_tfds_version(run: Resolved) -> Iterator[Found]:
    """Finds each TFDS dataset whose name or version the installed TFDS does not have."""
    for task, problem in _tfds_problems(run, can_be_prepared=False):
        yield _of_task(
            run,
            task,
            f"task {task.name} reads {problem.name}, which the installed TFDS does not have: {problem.detail}",
            "name a version that it has, or the folder with data that was prepared before: --tfds_data_dir=gs://bucket/folder",
        )


SEQ32 = Mistake(
    "SEQ32",
    "TFDS dataset that is not prepared",
    why=(
        "T5X lets TFDS download and prepare what it does not find, on the hosts of a TPU that waits: for hours, or "
        "until it fails."
    ),
    bad=training(files=_tfds("1.0.0", f"{examples.FOLDER}/elsewhere"), at="seqio.TaskRegistry.add("),
    good=training(files=_tfds("1.0.0", f"{examples.FOLDER}/prepared")),
)


@finds(SEQ32)
def not_prepared(run: Resolved) -> Iterator[Found]:
    """Finds each TFDS dataset that is not prepared."""
    for task, problem in _tfds_problems(run, can_be_prepared=True):
        yield _of_task(
            run,
            task,
            f"task {task.name} reads {problem.name}, which is not prepared in {problem.detail}: the job would "
            "download and prepare it",
            "give the folder that has it with --tfds_data_dir, or prepare it there first",
        )


SEQ34 = Mistake(
    "SEQ34",
    "file pattern that matches no file",
    why="SeqIO stops the job with `No file is found for the file pattern` once the TPU is there.",
    bad=training(
        files=examples.files(_SOURCE, f"seqio.TextLineDataSource({{'train': '{examples.FOLDER}/trian-*.txt'}})"),
        at="seqio.TaskRegistry.add(",
    ),
    good=training(
        files={
            "train.txt": "one two\t1 2\nthree\t3\n",
            **examples.files(
                f"{_SOURCE},\n    preprocessors=[",
                f"seqio.TextLineDataSource({{'train': '{examples.FOLDER}/train*.txt'}}),\n    preprocessors=[\n"
                "        lambda lines: lines.map(lambda x: dict(zip(('inputs', 'targets'), "
                "tf.unstack(tf.strings.split(x, '\\t'), 2)))), ",
            ),
        }
    ),
)


@finds(SEQ34)
def no_files(run: Resolved) -> Iterator[Found]:
    """Finds each split whose file pattern matches nothing, of tasks whose files this machine can see."""
    from t5x_harness.standins.task_data import files_of, out_of_reach, patterns_of

    for task, split in _tasks(run):
        if files_of(task, split) == [] and not out_of_reach(task, split):
            shown = ", ".join(patterns_of(task, split)) or "nothing"
            message = f"task {task.name} reads its split {split!r} from {shown}, which matches no file"
            yield _of_task(run, task, message, "correct the pattern")
