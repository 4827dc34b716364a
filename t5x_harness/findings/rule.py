"""Rules, and the tiny configs of their examples: a rule is a mistake, and the function by which a stage finds it.

A :class:`Rule` decorates that function, which looks at its stage's data and yields its findings.  If several stages
find one mistake, a variable named like its code decorates the function of each.  Nothing here, and nothing at the top
of a module of rules, imports JAX, TensorFlow or T5X: mistakes are listed and explained without them.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from t5x_harness.spec import Edit, Finding, Location, Mode, Severity, Stage


@dataclasses.dataclass(frozen=True)
class Example:
    """A config that shows a rule at work; the rule's page prints it and a test runs it.

    Attributes:
      gin: the text of the config's own file.
      bindings: the bindings of the command line.
      mode: the requested run mode.
      files: further files by name: included configs, modules with tasks, data.
      slice: the slice that the config is planned for.
      checkpoints: folders of checkpoints, and the config of the run that wrote each.
      golden: the config from which the golden plan was made; empty if it has none.
      at: the beginning of the line at fault, in a bad example; a command-line binding counts as a line. Empty if no
        line is at fault.
    """

    gin: str
    bindings: tuple[str, ...] = ()
    mode: Mode | None = None
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    slice: str = "v3-8"
    checkpoints: Mapping[str, str] = dataclasses.field(default_factory=dict)
    golden: str = ""
    at: str = ""


@dataclasses.dataclass(frozen=True)
class Found:
    """A mistake that a rule found, before it becomes a finding.

    Attributes:
      message: a description of the mistake, with the values that disagree.
      at: the stage's object at fault, which gives the finding its place and name; None for neither.
      fix: the smallest fix.
      severity: the severity, if it differs from the mistake's.
      location: a place that is better than that of ``at``, such as a line of the user's module.
      binding: a name that is better than that of ``at``.
      edits: the same fix in a form that programs can apply.
    """

    message: str
    at: Any
    fix: str
    _: dataclasses.KW_ONLY
    severity: Severity | None = None
    location: Location | None = None
    binding: str | None = None
    edits: tuple[Edit, ...] = ()


Check = Callable[[Any], Iterator[Found]]
PlaceOf = Callable[[Any], tuple[Location | None, str | None]]
"""Returns the place and the name of the object that a rule reports as at fault."""


@dataclasses.dataclass(frozen=True, eq=False)
class Rule:
    """One kind of mistake, and the way in which a stage finds it.

    Attributes:
      code: the stable id from the failure catalog.
      title: the mistake in a few words.
      why: the effect on the TPU, and the reason to obey the rule.
      bad: a config with the mistake.
      good: the same config without it.
      severity: the severity of its findings, unless a finding has its own.
      later: the cases that only a later stage can find, in words; empty if there are none.
      whole_program: whether lint applies it only after every statement has been read.
      check: yields the faults in the stage's data; None if the stage itself finds the mistake.
      name: the name for tools that show rules by name, such as ``UnreadMacro``; empty for a mistake that several
        stages find.
      stage: the stage that finds it, once :func:`rules_in` has collected it.
    """

    code: str
    title: str
    _: dataclasses.KW_ONLY
    why: str
    bad: Example
    good: Example
    severity: Severity = Severity.ERROR
    later: str = ""
    whole_program: bool = False
    check: Check | None = None
    name: str = ""
    stage: Stage = Stage.LINT

    def __call__(self, check: Check) -> Rule:
        """Decorates a function that finds the mistake; the rule of ``unread_macro`` is named ``UnreadMacro``."""
        name = "".join(word[0].upper() + word[1:] for word in check.__name__.split("_"))
        return dataclasses.replace(self, check=check, name=name)

    def findings(self, subject: Any, place: PlaceOf) -> Iterator[Finding]:
        """Yields the rule's findings in a subject."""
        return (finding for finding, _ in self.placed_findings(subject, place))

    def placed_findings(self, subject: Any, place: PlaceOf) -> Iterator[tuple[Finding, Location | None]]:
        """Yields the rule's findings, each with the place of the object at fault, although it may name a better one."""
        for found in self.check(subject) if self.check is not None else ():
            location, name = place(found.at)
            finding = Finding(
                self.code,
                found.severity or self.severity,
                self.stage,
                found.message,
                found.location or location,
                found.fix,
                found.binding or name,
                found.edits,
            )
            yield finding, location


def rules_in(package: str, stage: Stage) -> tuple[Rule, ...]:
    """Collects the rules that the modules of a package define, ordered by code, so that no list of them has to be kept.

    Args:
      package: its full name, which may be that of the package whose import calls this.
      stage: the stage whose rules they are.

    Raises:
      TypeError: two rules find mistakes with the same code.
    """
    found: dict[str, Rule] = {}
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        for rule in vars(importlib.import_module(f"{package}.{module.name}")).values():
            if isinstance(rule, Rule) and rule.name:
                other = found.setdefault(rule.code, rule)
                if other is not rule:
                    raise TypeError(f"two rules of {stage} find {rule.code}: {other.name} and {rule.name}")
    return tuple(dataclasses.replace(rule, stage=stage) for _, rule in sorted(found.items()))


TASK = """\
import seqio
import tensorflow as tf


def examples(split, shuffle_files=False, seed=None):
    return tf.data.Dataset.from_tensor_slices({'inputs': ['one two', 'three'], 'targets': ['1 2', '3']})


def exact(targets, predictions):
    return {'exact': float(targets == predictions)}


FEATURE = seqio.Feature(seqio.ByteVocabulary())

seqio.TaskRegistry.add(
    'counting',
    source=seqio.FunctionDataSource(examples, splits=('train', 'validation')),
    preprocessors=[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos],
    output_features={'inputs': FEATURE, 'targets': FEATURE},
    metric_fns=[exact],
)
"""
"""A module ``counting.py`` with a task of two examples."""

FILES = {"counting.py": TASK}

FOLDER = "/path/to"
"""A placeholder for the folder of the example's files."""

_HEAD = """\
from __gin__ import dynamic_registration
import __main__ as {mode}_script
import seqio
from t5x import partitioning
from t5x import utils
from t5x.examples.t5 import network
include 't5x/examples/t5/t5_1_1/tiny.gin'
include 't5x/configs/runs/{run}.gin'
import counting
MIXTURE_OR_TASK_NAME = 'counting'
TASK_FEATURE_LENGTHS = {{'inputs': 32, 'targets': 32}}
DROPOUT_RATE = 0.0
VOCABULARY = @seqio.ByteVocabulary()
network.T5Config.vocab_size = 384
"""
_TRAIN = (
    _HEAD.format(mode="train", run="pretrain") + "TRAIN_STEPS = 10_000\nBATCH_SIZE = 128\nUSE_CACHED_TASKS = False\n"
)
_EVAL = _HEAD.format(mode="eval", run="eval")
_INFER = _HEAD.format(mode="infer", run="infer")


BASES = {
    "The task module": TASK,
    "The train config": _TRAIN,
    "The eval config": _EVAL,
    "The infer config": _INFER,
}
"""The files that examples start from, by their headings in the pages of rules, which print each once."""


def run_head(run: str, *imports: str, model: str = "tiny") -> str:
    """Returns the beginning of a config: imports, if any, a model's file and one of T5X's run configs."""
    lines = ["from __gin__ import dynamic_registration", *imports] if imports else []
    lines += [f"include 't5x/examples/t5/t5_1_1/{model}.gin'", f"include 't5x/configs/runs/{run}.gin'"]
    return "".join(f"{line}\n" for line in lines)


def task_files(before: str = "", after: str = "", /) -> dict[str, str]:
    """Returns the task's module, with one piece of its text replaced.

    Raises:
      ValueError: the module does not contain the text.
    """
    if before not in TASK:
        raise ValueError(f"the task's module has no {before!r}")
    return {"counting.py": TASK.replace(before, after)}


def trained(*lines: str) -> str:
    """Returns a train config that ends with these lines."""
    return _TRAIN + "".join(f"{line}\n" for line in lines)


def restored_from(path: str) -> tuple[str, ...]:
    """Returns the lines of a train config that starts from a checkpoint in the example's folder."""
    return (
        f"utils.RestoreCheckpointConfig.path = '{FOLDER}/{path}'",
        "utils.RestoreCheckpointConfig.mode = 'specific'",
        "utils.CheckpointConfig.restore = @utils.RestoreCheckpointConfig()",
    )


def training(*lines: str, **parts: Any) -> Example:
    """Returns an example of a train config that ends with these lines; its files are the task's module by default."""
    return Example(trained(*lines), **{"files": FILES, **parts})


def evaluating(*lines: str, **parts: Any) -> Example:
    """Returns an example of an eval config; see :func:`training`."""
    return Example(evaluated(*lines), **{"files": FILES, **parts})


def inferring(*lines: str, **parts: Any) -> Example:
    """Returns an example of an infer config; see :func:`training`."""
    return Example(inferred(*lines), **{"files": FILES, **parts})


def evaluated(*lines: str) -> str:
    """Returns an eval config that ends with these lines."""
    return _EVAL + "".join(f"{line}\n" for line in lines)


def inferred(*lines: str) -> str:
    """Returns an infer config that ends with these lines."""
    return _INFER + "".join(f"{line}\n" for line in lines)
