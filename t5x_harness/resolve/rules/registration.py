"""SEQ05, SEQ07, SEQ08, SEQ17, SEQ33, SEQ38 and GIN22: how tasks and mixtures are registered, written and mixed."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.findings.rule import FILES, TASK, Found, Rule, task_files, training
from t5x_harness.spec import Severity

if TYPE_CHECKING:
    from t5x_harness.resolve.resolved import Resolved


_SOURCE = "source=seqio.FunctionDataSource(examples, splits=('train', 'validation'))"
_STEPS = "preprocessors=[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos]"
_EXTRA = {"extra.py": "import gin\n\n\n@gin.configurable\ndef shout(text):\n    return text\n", **FILES}
_MIXED = "MIXTURE_OR_TASK_NAME = 'mixed'"
_BOTH = "{'inputs': OTHER, 'targets': OTHER}"
_SPLITS = "splits=('train', 'validation')"
_COUNTED = f"{_SPLITS}, num_input_examples={{'train': 2, 'validation': 2}}"
_MIXTURE = """\

seqio.MixtureRegistry.add('mixed', ['counting'], default_rate=seqio.mixing_rate_num_examples)
"""


def _mixture(vocabulary: str, features: str) -> dict[str, str]:
    """Returns the example's module, with a second task and a mixture of both at its end."""
    text = f"""
OTHER = seqio.Feature({vocabulary})

seqio.TaskRegistry.add(
    'other',
    {_SOURCE},
    {_STEPS},
    output_features={features},
)
seqio.MixtureRegistry.add('mixed', ['counting', 'other'], default_rate=1.0)
"""
    return {"counting.py": TASK + text}


_GOOD_MIXTURE = training(_MIXED, files=_mixture("seqio.ByteVocabulary()", _BOTH))


SEQ05 = Rule(
    "SEQ05",
    "task or mixture registered twice",
    name="RegisteredTwice",
    why=(
        "SeqIO refuses a second task or mixture of the same name: of two that were meant to differ, of a copied "
        "module, or of one that is imported under two names, such as `tasks` and `my_project.tasks`, and so runs twice."
    ),
    bad=training(
        "import project.counting",
        files={"project/__init__.py": "", "project/counting.py": TASK, **FILES},
        at="seqio.TaskRegistry.add(",
    ),
    good=training(),
)


@Rule(
    "SEQ07",
    "mixture of tasks with different features",
    why=(
        "SeqIO refuses a mixture whose tasks do not all have the same output features, such as one without inputs. If "
        "one of them leaves a feature out that it need not have, TensorFlow does: `datasets must have compatible "
        "element specs`."
    ),
    bad=training(
        _MIXED, files=_mixture("seqio.ByteVocabulary()", "{'targets': OTHER}"), at="seqio.MixtureRegistry.add('mixed'"
    ),
    good=_GOOD_MIXTURE,
)
def features_left(run: Resolved) -> Iterator[Found]:
    """Finds each mixture of which one task leaves a feature that another does not; SEQ06 has those the model takes."""
    from t5x_harness.resolve.datasets import demanded_features

    said = set()
    for role in run.roles:
        samples = [s for r, s in run.sampled() if r is role and s.features]
        taken = demanded_features(run.model, role)
        if run.has_evaluator(role) or role.source in said or not samples:
            continue
        left = {s.task.name: (s.features & set(s.task.output_features)) - taken for s in samples}
        (first, ours), *others = left.items()
        if other := next(((name, theirs) for name, theirs in others if theirs != ours), None):
            said.add(role.source)
            name = ", ".join(sorted(ours ^ other[1]))
            has, lacks = (first, other[0]) if ours - other[1] else (other[0], first)
            differ = f"{has} leaves {name}, and {lacks} does not"
            message = f"the tasks of mixture {role.source} do not leave the same features: {differ}"
            fix = f"let {lacks} leave {name}, which may be empty, or {has} leave it out"
            yield Found(message, None, fix, location=run.registrations.place(role.source))


@Rule(
    "SEQ08",
    "mixture of tasks with different vocabularies",
    why="SeqIO looks at the vocabularies of a mixture only when it is read, and prints two objects that look alike.",
    bad=training(_MIXED, files=_mixture("seqio.ByteVocabulary(extra_ids=100)", _BOTH), at="seqio.MixtureRe"),
    good=_GOOD_MIXTURE,
)
def different_kinds(run: Resolved) -> Iterator[Found]:
    """Finds each feature that two tasks of a mixture define differently."""
    from t5x_harness.resolve.datasets import describe_vocabulary

    for role in run.roles:
        first, *others = run.tasks[role.parameter]
        for name, feature in first.output_features.items():
            for task in others:
                other = task.output_features[name]
                if other.vocabulary == feature.vocabulary and other.dtype == feature.dtype:
                    continue
                ours, theirs = (
                    f"{describe_vocabulary(f.vocabulary)}, {f.dtype.name}, in {t.name}"
                    for f, t in ((feature, first), (other, task))
                )
                message = f"the tasks of mixture {role.source} do not agree on feature {name}: {ours}, and {theirs}"
                fix = "give both tasks the same vocabulary, best the same object"
                yield Found(message, None, fix, location=run.registrations.place(role.source))
                break


@Rule(
    "SEQ38",
    "SeqIO task in the place of its name",
    why=(
        "T5X's check of the vocabularies takes the object for one of AirIO and fails with `'Task' object has no "
        "attribute 'get_preprocessors'`."
    ),
    bad=training(
        "MIXTURE_OR_TASK_NAME = @counting.the_task()",
        files={"counting.py": f"{TASK}\n\ndef the_task():\n    return seqio.get_mixture_or_task('counting')\n"},
        at="MIXTURE_OR_TASK_NAME = @counting",
    ),
    good=training(),
)
def task_object(run: Resolved) -> Iterator[Found]:
    """Finds each task object in place of a name, if T5X or SeqIO stops because of it."""
    import seqio

    for role in run.roles:
        given, key = role.dataset.mixture_or_task_name, role.key(run.config, "mixture_or_task_name")
        if not isinstance(given, seqio.DatasetProviderBase):
            continue
        if run.verifies_vocabularies:
            problem = "at which T5X's check of the vocabularies fails"
        elif run.has_evaluator(role):
            problem = "and SeqIO's evaluator takes names only"
        else:
            continue
        message = f"mixture_or_task_name is the SeqIO {type(given).__name__.lower()} {given.name} itself, {problem}"
        yield Found(message, key, f"give its name, {given.name!r}")


GIN22 = Rule(
    "GIN22",
    "MIXTURE_OR_TASK_MODULE with Gin configurables",
    name="ConfigurablesInModule",
    why=(
        "T5X imports the module when the config is locked, and Gin lets nothing register then. T5X's own configs that "
        'name "t5.data.mixtures" stop for this.'
    ),
    bad=training("MIXTURE_OR_TASK_MODULE = 'extra'", files=_EXTRA, at="MIXTURE_OR_TASK_MODULE = 'extra'"),
    good=training("import extra", files=_EXTRA),
)


_OF_T5X = ("split", "use_cached", "shuffle", "seed", "shard_info", "num_epochs", "trim_output_features")
"""The arguments that T5X passes through SeqIO to the ``get_dataset`` of a task or mixture, in addition to lengths."""

_CLASS = """\
class OldTask(seqio.Task):
    def get_dataset(
        self, sequence_length=None, split='train', use_cached=False, shuffle=True, seed=None, shard_info=None,
        num_epochs=1
    ):
        return super().get_dataset(
            sequence_length, split, use_cached, shuffle, seed=seed, shard_info=shard_info, num_epochs=num_epochs
        )


seqio.TaskRegistry.add(
    'counting',
"""


@Rule(
    "SEQ33",
    "task class that does not take what T5X gives",
    why=(
        "T5X and SeqIO from different times, or your own task class for an older SeqIO, end in `get_dataset() got "
        "an unexpected keyword argument 'trim_output_features'`."
    ),
    bad=training(
        files=task_files("seqio.TaskRegistry.add(\n    'counting',\n", f"{_CLASS}    task_cls=OldTask,\n"),
        at="seqio.TaskRegistry.add(",
    ),
    good=training(),
)
def old_interface(run: Resolved) -> Iterator[Found]:
    """Finds each task or mixture whose ``get_dataset`` does not take the arguments that T5X passes."""
    providers = {task.name: task for tasks in run.tasks.values() for task in tasks}
    providers |= {role.provider.name: role.provider for role in run.roles}
    for provider in providers.values():
        refused = _refused(provider.get_dataset)
        if refused:
            yield Found(
                f"{type(provider).__name__}.get_dataset of {provider.name} does not take {refused}, which T5X gives it",
                None,
                "take **kwargs and hand them on, or install a SeqIO and a T5X of the same time",
                location=run.registrations.place(provider.name),
            )


def _refused(get_dataset: object) -> str:
    """Returns the arguments that a method does not take, in words."""
    parameters = inspect.signature(get_dataset).parameters.values()  # type: ignore[arg-type]
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        return ""
    taken = {p.name for p in parameters if p.kind is not inspect.Parameter.POSITIONAL_ONLY}
    return ", ".join(name for name in _OF_T5X if name not in taken)


@Rule(
    "SEQ17",
    "mixing rate that is not a positive number",
    why=(
        "`seqio.mixing_rate_num_examples` needs a cached task, or a source with `num_input_examples`: without, it "
        "raises `unsupported operand type(s) for *=` when the job starts. A task with the rate 0 is never seen."
    ),
    bad=training(_MIXED, files={"counting.py": TASK + _MIXTURE}, at="seqio.MixtureRegistry.add("),
    good=training(_MIXED, files={"counting.py": TASK.replace(_SPLITS, _COUNTED) + _MIXTURE}),
)
def mixing_rates(run: Resolved) -> Iterator[Found]:
    """Finds each task without a positive rate in a mixture whose data is mixed."""
    for mixture, split in run.mixtures():
        place = run.registrations.place(mixture.name)
        rates = run.rates(mixture, split)
        if rates and all(rate == 0 for rate in rates.values()):
            message = f"all tasks of mixture {mixture.name} have the rate 0: it has no example"
            yield Found(message, None, "give at least one rate above 0", location=place)
            continue
        for task, rate in rates.items():
            if isinstance(rate, Exception):
                unknown = isinstance(rate, TypeError) and "operand" in str(rate)
                why = (
                    "its source does not say num_input_examples, and it is not cached"
                    if unknown
                    else (f"{type(rate).__name__}: {rate}")
                )
                message = f"the rate of task {task} in mixture {mixture.name} cannot be computed: {why}"
                sized = "give the task's source num_input_examples, cache it, or "
                fix = f"{sized if unknown else ''}give a number as the rate"
                yield Found(message, None, fix, location=place)
            elif rate == 0:
                message = f"task {task} has the rate 0 in mixture {mixture.name}: no example of it is ever read"
                fix = f"give a rate above 0, or take {task} out of the mixture"
                yield Found(message, None, fix, location=place, severity=Severity.WARNING)
            elif rate < 0 or not math.isfinite(rate):
                yield Found(
                    f"task {task} has the rate {rate:g} in mixture {mixture.name}, which must be a positive number",
                    None,
                    "give a rate above 0",
                    location=place,
                )
