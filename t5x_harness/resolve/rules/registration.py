"""SEQ05, SEQ07, SEQ08, SEQ38 and GIN22: how tasks and mixtures come into SeqIO's registries, and into the config."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.findings import examples
from t5x_harness.findings.examples import training
from t5x_harness.findings.rule import Found, Mistake
from t5x_harness.resolve.rule import finds

if TYPE_CHECKING:
    from t5x_harness.resolve.resolved import Resolved

_SOURCE = "source=seqio.FunctionDataSource(examples, splits=('train', 'validation'))"
_STEPS = "preprocessors=[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos]"
_MIXED = "MIXTURE_OR_TASK_NAME = 'mixed'"


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
    return {"counting.py": examples.TASK + text}


_BOTH = "{'inputs': OTHER, 'targets': OTHER}"
_GOOD_MIXTURE = training(_MIXED, files=_mixture("seqio.ByteVocabulary()", _BOTH))


SEQ05 = Mistake(
    "SEQ05",
    "task or mixture registered twice",
    why=(
        "SeqIO refuses a second task or mixture of the same name: of two that were meant to differ, of a copied "
        "module, or of one that is imported under two names, such as `tasks` and `my_project.tasks`, and so runs twice."
    ),
    bad=training(
        "import project.counting",
        files={"project/__init__.py": "", "project/counting.py": examples.TASK, **examples.FILES},
        at="seqio.TaskRegistry.add(",
    ),
    good=training(),
)


SEQ07 = Mistake(
    "SEQ07",
    "mixture of tasks with different features",
    why="SeqIO refuses a mixture whose tasks do not all have the same output features, such as one without inputs.",
    bad=training(
        _MIXED, files=_mixture("seqio.ByteVocabulary()", "{'targets': OTHER}"), at="seqio.MixtureRegistry.add('mixed'"
    ),
    good=_GOOD_MIXTURE,
)


SEQ08 = Mistake(
    "SEQ08",
    "mixture of tasks with different vocabularies",
    why="SeqIO looks at the vocabularies of a mixture only when it is read, and prints two objects that look alike.",
    bad=training(_MIXED, files=_mixture("seqio.ByteVocabulary(extra_ids=100)", _BOTH), at="seqio.MixtureRe"),
    good=_GOOD_MIXTURE,
)


@finds(SEQ08)
def different_kinds(run: Resolved) -> Iterator[Found]:
    """Finds each feature on which two tasks of a mixture do not agree."""
    from t5x_harness.resolve.datasets import describe_vocabulary

    said = set()
    for role in run.roles:
        first, *others = run.tasks[role.parameter]
        for name, feature in first.output_features.items():
            for task in others:
                other = task.output_features[name]
                same = other.vocabulary == feature.vocabulary and other.dtype == feature.dtype
                if same or (role.source, name) in said:
                    continue
                said.add((role.source, name))
                ours, theirs = (
                    f"{describe_vocabulary(f.vocabulary)}, {f.dtype.name}, in {t.name}"
                    for f, t in ((feature, first), (other, task))
                )
                yield Found(
                    f"the tasks of mixture {role.source} do not agree on feature {name}: {ours}, and {theirs}",
                    None,
                    "give both tasks the same vocabulary, best the same object",
                    location=run.registrations.place(role.source),
                )


SEQ38 = Mistake(
    "SEQ38",
    "SeqIO task in the place of its name",
    why=(
        "T5X's check of the vocabularies takes the object for one of AirIO and fails with `'Task' object has no "
        "attribute 'get_preprocessors'`."
    ),
    bad=training(
        "MIXTURE_OR_TASK_NAME = @counting.the_task()",
        files={
            "counting.py": f"{examples.TASK}\n\ndef the_task():\n    return seqio.get_mixture_or_task('counting')\n"
        },
        at="MIXTURE_OR_TASK_NAME = @counting",
    ),
    good=training(),
)


@finds(SEQ38)
def task_object(run: Resolved) -> Iterator[Found]:
    """Finds each task object in the place of a name that T5X or SeqIO stops at."""
    import seqio

    said = set()
    for role in run.roles:
        given, key = role.dataset.mixture_or_task_name, role.key(run.config, "mixture_or_task_name")
        if not isinstance(given, seqio.DatasetProviderBase) or key in said:
            continue
        if run.verifies_vocabularies:
            problem = "at which T5X's check of the vocabularies fails"
        elif run.has_evaluator(role):
            problem = "and SeqIO's evaluator takes names only"
        else:
            continue
        said.add(key)
        yield Found(
            f"mixture_or_task_name is the SeqIO {type(given).__name__.lower()} {given.name} itself, {problem}",
            key,
            f"give its name, {given.name!r}",
        )


GIN22 = Mistake(
    "GIN22",
    "MIXTURE_OR_TASK_MODULE with Gin configurables",
    why=(
        "T5X imports the module when the config is locked, and Gin lets nothing register then. T5X's own configs that "
        'name "t5.data.mixtures" stop for this.'
    ),
    bad=training(
        "MIXTURE_OR_TASK_MODULE = 'extra'",
        files={"extra.py": "import gin\n\n\n@gin.configurable\ndef shout(text):\n    return text\n", **examples.FILES},
        at="MIXTURE_OR_TASK_MODULE = 'extra'",
    ),
    good=training(
        "import extra",
        files={"extra.py": "import gin\n\n\n@gin.configurable\ndef shout(text):\n    return text\n", **examples.FILES},
    ),
)


FOUND_BY_STAGE = {"RegisteredTwice": SEQ05, "DifferentFeatures": SEQ07, "ConfigurablesInModule": GIN22}
