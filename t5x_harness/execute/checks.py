"""What resolve looks for: small checks that register themselves, each for some codes of the failure catalogue.

A check sees the :class:`Resolved` run: the model, the datasets and a sample of each.  To add one, subclass
:class:`Check` here or in a module that is imported with this one.
"""

from __future__ import annotations

import abc
import dataclasses
import difflib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import seqio

from t5x_harness.execute.datasets import DataRole, Sample
from t5x_harness.execute.gin_config import BindingKey, GinConfig
from t5x_harness.execute.stage_report import StageReport
from t5x_harness.spec import Mode, Severity

__all__ = ["Check", "Resolved", "embedding_rows", "lengths_of", "unknown_task"]


@dataclasses.dataclass
class Resolved:
    """A config's objects, as the run would build them.

    Attributes:
      config: the parsed config.
      model: T5X's model.
      roles: its datasets.
      tasks: the tasks of each role, by the role's parameter.
      samples: what was read, by role's parameter and task name.
    """

    config: GinConfig
    model: Any
    roles: list[DataRole] = dataclasses.field(default_factory=list)
    tasks: dict[str, Sequence[seqio.Task]] = dataclasses.field(default_factory=dict)
    samples: dict[tuple[str, str], Sample] = dataclasses.field(default_factory=dict)

    def sampled(self) -> Iterator[tuple[DataRole, Sample]]:
        """Every sample with the role that it was read for."""
        for role in self.roles:
            for task in self.tasks.get(role.parameter, ()):
                if sample := self.samples.get((role.parameter, task.name)):
                    yield role, sample


class Check(abc.ABC):
    """One thing to look at. Subclasses register themselves by their codes, which must be their own."""

    codes: ClassVar[tuple[str, ...]]
    registered: ClassVar[dict[str, type[Check]]] = {}

    def __init_subclass__(cls) -> None:
        for code in cls.codes:
            if code in Check.registered:
                raise TypeError(f"{cls.__name__}: {code} is already checked by {Check.registered[code].__name__}")
            Check.registered[code] = cls

    @classmethod
    def all(cls) -> list[type[Check]]:
        """Every check, each once, in the order in which they were defined."""
        return list(dict.fromkeys(cls.registered.values()))

    @abc.abstractmethod
    def look(self, run: Resolved, report: StageReport) -> None:
        """Adds facts, findings and what could not be judged to the report."""


def embedding_rows(model: Any, config: GinConfig) -> tuple[int | None, BindingKey | None]:
    """Rows of the model's token embedding and the binding that sets them; None where neither can be read."""
    key = config.find("vocab_size") or config.find("num_embeddings")
    rows = getattr(getattr(getattr(model, "module", None), "config", None), "vocab_size", None)
    if rows is None and key:
        rows = config.value(config.owner(key))
    return (rows if isinstance(rows, int) else None), (config.owner(key) if key else None)


def unknown_task(role: DataRole, config: GinConfig, report: StageReport) -> None:
    """SEQ04 for a task that nothing registered, with the names that come close."""
    names = sorted({*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()})
    close = difflib.get_close_matches(role.source, names, n=3, cutoff=0.6)
    key = role.key(config, "mixture_or_task_name")
    report.find(
        "SEQ04",
        Severity.ERROR,
        f"no task or mixture is called {role.source!r}; {len(names)} are registered"
        + (f", the closest {', '.join(map(repr, close))}" if close else ""),
        location=config.location(key),
        fix=f"use {close[0]!r}" if close else "import the module that registers it in the Gin file",
        binding=str(key.short) if key else None,
    )


class Splits(Check):
    """Whether the tasks have the splits that are asked of them, and metrics where they are to be computed."""

    codes = ("SEQ18", "SEQ19", "INF11")

    def look(self, run: Resolved, report: StageReport) -> None:
        """See the class."""
        for role in run.roles:
            split = role.dataset.split
            key = role.key(run.config, "split")
            for task in run.tasks[role.parameter]:
                if split.split("[")[0] in task.splits or "+" in split:
                    continue
                have = ", ".join(task.splits) or "none"
                self._missing(run, role, task, f"task {task.name} has no split {split!r} (it has: {have})", key, report)
            if run.config.mode is Mode.EVAL or role.name == "infer_eval":
                self._metrics(run, role, report)

    @staticmethod
    def _missing(
        run: Resolved, role: DataRole, task: seqio.Task, what: str, key: BindingKey | None, report: StageReport
    ) -> None:
        mode = run.config.mode
        silent = role.name in ("train_eval", "infer_eval") or len(run.tasks[role.parameter]) > 1
        code = "SEQ18" if silent else "INF11" if mode is Mode.INFER else "SEQ19"
        close = difflib.get_close_matches(role.dataset.split, list(task.splits), n=1)
        report.find(
            code,
            Severity.WARNING if silent else Severity.ERROR,
            what + (": T5X skips it without a word" if silent else ""),
            location=run.config.location(key),
            fix=f"use {close[0]!r}" if close else "choose a split that it has",
            binding=key.short if key else None,
        )

    @staticmethod
    def _metrics(run: Resolved, role: DataRole, report: StageReport) -> None:
        judged = [t.name for t in run.tasks[role.parameter] if t.metric_fns]
        report.fact(f"{role.name} metrics", ", ".join(judged) or "none")
        if judged:
            return
        key = role.key(run.config, "mixture_or_task_name")
        report.find(
            "SEQ19",
            Severity.ERROR if run.config.mode is Mode.EVAL else Severity.NOTE,
            f"{role.source} has no metric_fns, so nothing of it is evaluated by its predictions",
            location=run.config.location(key),
            fix="register the task with metric_fns",
            binding=key.short if key else None,
        )


class FeatureLengths(Check):
    """Whether every feature that the model takes has a length, and no other."""

    codes = ("SEQ15",)

    def look(self, run: Resolved, report: StageReport) -> None:
        """See the class."""
        needed = set(getattr(run.model.FEATURE_CONVERTER_CLS, "TASK_FEATURES", {}))
        for role in run.roles:
            lengths = role.dataset.task_feature_lengths
            if lengths is None or not needed:
                continue
            key = role.key(run.config, "task_feature_lengths")
            for names, what, fix in (
                (needed - set(lengths), "lacks", "add"),
                (set(lengths) - needed, "has besides", "remove"),
            ):
                if names:
                    listed = ", ".join(sorted(names))
                    report.find(
                        "SEQ15",
                        Severity.ERROR,
                        f"task_feature_lengths is {dict(lengths)} and {what} {listed}; "
                        f"the model takes {', '.join(sorted(needed))}",
                        location=run.config.location(key),
                        fix=f"{fix} {listed}",
                        binding=key.short if key else None,
                    )


class Truncation(Check):
    """How much of the data the feature lengths cut off."""

    codes = ("SEQ16",)

    def look(self, run: Resolved, report: StageReport) -> None:
        """See the class."""
        for role, sample in run.sampled():
            lengths = role.dataset.task_feature_lengths or {}
            where = f"{sample.task.name} {sample.split}"
            if not sample.whole:
                report.not_checked.append(
                    f"how much of {where} is truncated: its preprocessors need the lengths and cut by themselves"
                )
                continue
            for feature, length in lengths.items():
                share = sample.truncated(feature, length)
                if share:
                    report.fact(f"{where} {feature} truncated", f"{share:.0%} of {len(sample.examples)} at {length}")
                if share > 0.5:
                    key = role.key(run.config, "task_feature_lengths")
                    report.find(
                        "SEQ16",
                        Severity.WARNING,
                        f"{share:.0%} of the sampled examples of {where} lose part of {feature}: the length is {length}"
                        f" and they have up to {sample.longest(feature)} tokens",
                        location=run.config.location(key),
                        fix=f"raise the length of {feature}, or mean it",
                        binding=key.short if key else None,
                    )


class Vocabularies(Check):
    """Whether model and tasks speak the same ids, and the embedding has a row for each."""

    codes = ("SEQ09", "SEQ12")

    def look(self, run: Resolved, report: StageReport) -> None:
        """See the class."""
        ours = {
            "inputs": getattr(run.model, "input_vocabulary", None),
            "targets": getattr(run.model, "output_vocabulary", None),
        }
        rows, key = embedding_rows(run.model, run.config)
        shown = dict.fromkeys(_describe(v) for v in ours.values() if isinstance(v, seqio.Vocabulary))
        for description in shown:
            report.fact("vocabulary", f"{description}, embedding {rows if rows else 'of unknown size'}")
        if rows is None:
            report.not_checked.append("whether every token id has a row of the embedding: its size is not known")
        seen = set()
        for role in run.roles:
            for task in run.tasks[role.parameter]:
                for name, feature in task.output_features.items():
                    other = ours.get(name)
                    pair = (task.name, name)
                    if isinstance(other, seqio.Vocabulary) and feature.vocabulary != other and pair not in seen:
                        seen.add(pair)
                        self._differ(run, role, task, name, feature.vocabulary, other, report)
        if rows is not None:
            self._ids(run, rows, key, report)

    @staticmethod
    def _differ(
        run: Resolved,
        role: DataRole,
        task: seqio.Task,
        name: str,
        theirs: seqio.Vocabulary,
        ours: seqio.Vocabulary,
        report: StageReport,
    ) -> None:
        macro = BindingKey.of_macro("VOCABULARY")
        key = macro if run.config.is_bound(macro) else role.key(run.config, "mixture_or_task_name")
        report.find(
            "SEQ09",
            Severity.ERROR,
            f"feature {name} of task {task.name} uses {_describe(theirs)}, the model {_describe(ours)}",
            location=run.config.location(key),
            fix="give the model the task's vocabulary",
            binding=key.short if key else None,
        )

    @staticmethod
    def _ids(run: Resolved, rows: int, key: BindingKey | None, report: StageReport) -> None:
        """SEQ12 for the largest id without a row; else, as a warning, for the largest vocabulary that has such ids."""
        ids: dict[str, int] = {}
        sizes: dict[str, int] = {}
        for role, sample in run.sampled():
            for name, feature in sample.task.output_features.items():
                if not feature.dtype.is_integer:
                    continue
                where = f"feature {name} of {sample.task.name}"
                found = [int(e[name].max()) for e in sample.examples if name in e and e[name].size]
                ids[f"{where} {role.dataset.split}"] = max(found, default=-1)
                sizes[where] = feature.vocabulary.vocab_size or 0
        beyond = {where: largest for where, largest in ids.items() if largest >= rows}
        larger = {where: size for where, size in sizes.items() if size > rows}
        name = key.short if key else "vocab_size"
        if beyond:
            where = max(beyond, key=beyond.__getitem__)
            report.find(
                "SEQ12",
                Severity.ERROR,
                f"{where} has the id {beyond[where]}, and the embedding has {rows} rows; JAX reads another row without "
                f"an error{_more(beyond, 'is', 'are')}",
                location=run.config.location(key),
                fix=f"set {name} to at least {max(beyond[where] + 1, *larger.values(), 0)}",
                binding=key.short if key else None,
            )
        elif larger:
            where = max(larger, key=larger.__getitem__)
            report.find(
                "SEQ12",
                Severity.WARNING,
                f"the vocabulary of {where} has {larger[where]} ids and the embedding {rows} rows; the sampled "
                f"examples happen to stay below{_more(larger, 'is', 'are')}",
                location=run.config.location(key),
                fix=f"set {name} to at least {larger[where]}",
                binding=key.short if key else None,
            )


def _more(found: Mapping[str, int], one: str, many: str) -> str:
    """``; so are 3 more``, or nothing where there is only one."""
    left = len(found) - 1
    return f"; so {one if left == 1 else many} {left} more" if left else ""


class EndOfSequence(Check):
    """Whether the targets end, so that decoding learns to stop."""

    codes = ("SEQ14",)

    def look(self, run: Resolved, report: StageReport) -> None:
        """See the class."""
        for role, sample in run.sampled():
            feature = sample.task.output_features.get("targets")
            if role.name != "train" or feature is None or not sample.whole:
                continue
            eos = getattr(feature.vocabulary, "eos_id", None)
            targets = [e["targets"] for e in sample.examples if "targets" in e and e["targets"].ndim == 1]
            if eos is not None and targets and not any(len(t) and t[-1] == eos for t in targets):
                key = role.key(run.config, "mixture_or_task_name")
                report.find(
                    "SEQ14",
                    Severity.WARNING,
                    f"no sampled target of {sample.task.name} ends with the end-of-sequence id {eos}, so decoding "
                    "never learns to stop",
                    location=run.config.location(key),
                    fix="append seqio.preprocessors.append_eos and declare the feature with add_eos=True",
                    binding=key.short if key else None,
                )


def _describe(vocabulary: seqio.Vocabulary) -> str:
    """A vocabulary by what tells it from others: kind, file, size, extra ids."""
    parts = [f"{vocabulary.vocab_size} ids"]
    extra = getattr(vocabulary, "extra_ids", 0)
    if extra:
        parts.append(f"{extra} extra")
    for name in ("sentencepiece_model_file", "_sentencepiece_model_file", "vocab_file"):
        file = inspect.getattr_static(vocabulary, name, None) or vars(vocabulary).get(name)
        if isinstance(file, str):
            parts.append(file)
            break
    return f"{type(vocabulary).__name__} ({', '.join(parts)})"


def lengths_of(
    role: DataRole, samples: Mapping[tuple[str, str], Sample], tasks: Sequence[seqio.Task]
) -> dict[str, int]:
    """The feature lengths of a dataset: those given, or what the sample's longest examples need."""
    if role.dataset.task_feature_lengths is not None:
        return dict(role.dataset.task_feature_lengths)
    found: dict[str, int] = {}
    for task in tasks:
        if sample := samples.get((role.parameter, task.name)):
            for feature in task.output_features:
                found[feature] = max(found.get(feature, 0), sample.longest(feature))
    return found
