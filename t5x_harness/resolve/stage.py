"""The resolve stage: builds the objects behind the bindings, samples the data, and reports both as tables."""

import dataclasses
import statistics

import gin
import seqio
from t5x import utils

from t5x_harness.findings.stage_report import StageReport
from t5x_harness.findings.text import columns
from t5x_harness.gin.config import GinConfig
from t5x_harness.resolve.datasets import DataRole, Registrations, roles_of, tasks_of, vocabulary_size
from t5x_harness.resolve.early_metrics import call_metrics
from t5x_harness.resolve.explanation import explain, log_traceback
from t5x_harness.resolve.known_errors import reword
from t5x_harness.resolve.output_folder import unseen
from t5x_harness.resolve.resolved import Resolved
from t5x_harness.resolve.rules import RULES
from t5x_harness.resolve.samples import Sample, packed_rows
from t5x_harness.resolve.sampling import sample_data
from t5x_harness.slices.slice import Slice
from t5x_harness.spec import READ_SECONDS
from t5x_harness.standins.run import StandIns
from t5x_harness.standins.sources import cache_of, files_of, out_of_reach, patterns_of, splits_of
from t5x_harness.upstream.seqio import metric_functions, metric_objects, vocabulary_file, weights_of

_OF_NAMES = ("SEQ01", "SEQ04", "SEQ31", "SEQ32", "SEQ34")
"""Rules that need only a task's name, cache and source, and so apply even to data that cannot be read here."""


def describe(run: Resolved, slice_: Slice, report: StageReport) -> None:
    """Adds the facts, and notes on what could not be judged.

    Args:
      run: the resolved run, with its data sampled.
      slice_: the slice whose hosts are going to read the data.
      report: receives the facts.
    """
    for role in run.roles:
        lengths = role.dataset.task_feature_lengths
        report.fact(
            f"{role.name} data",
            f"{role.source} {role.dataset.split}, lengths {dict(lengths) if lengths else 'of the longest example'}"
            f"{', packed' if role.dataset.pack else ''}{', cached' if role.dataset.use_cached else ''}",
        )
    _vocabularies(run, report)
    _features(run, report)
    _packing(run, report)
    _sources(run, slice_, report)
    _rates(run, report)
    _metrics(run, report)


def _vocabularies(run: Resolved, report: StageReport) -> None:
    """Adds a row for each vocabulary with everything that uses it; equal vocabularies share a row."""
    users: list[tuple[seqio.Vocabulary, list[str]]] = []
    of_model = (getattr(run.model, f"{side}_vocabulary", None) for side in ("input", "output"))
    used = [("model", vocabulary) for vocabulary in of_model if isinstance(vocabulary, seqio.Vocabulary)]
    tasks = {task.name: task for _, task in run.reads()}
    used += [(name, f.vocabulary) for name, task in tasks.items() for f in task.output_features.values()]
    for name, vocabulary in used:
        known = next((names for other, names in users if other == vocabulary), None)
        if known is None:
            users.append((vocabulary, [name]))
        elif name not in known:
            known.append(name)
    for vocabulary, _ in users:
        if run.is_vocabulary_guessed(vocabulary):
            file, size = vocabulary_file(vocabulary), vocabulary_size(vocabulary)
            report.leave_open(
                f"how many ids {file} has: {size} is a guess, from its name and the rows of the embedding"
            )
    rows = [(", ".join(names), *_vocabulary(vocabulary)) for vocabulary, names in users]
    if rows:
        report.fact("vocabulary", columns(rows, ("of", "kind", "ids", "extra", "pad", "eos", "unk", "file")))
    embedding, _ = run.embedding_rows
    report.fact("embedding", f"{embedding:,} rows" if embedding else "of unknown size")
    if embedding is None:
        report.not_checked.append("whether every token id has a row of the embedding: its size is not known")


def _vocabulary(vocabulary: seqio.Vocabulary) -> tuple[object, ...]:
    size = vocabulary_size(vocabulary)
    names = ("pad_id", "eos_id", "unk_id") if size is not None else ()
    ids = [getattr(vocabulary, name, None) for name in names] or ["?"] * 3
    shown = ["-" if number is None else number for number in ids]
    file = vocabulary_file(vocabulary) or "-"
    return type(vocabulary).__name__, "?" if size is None else size, vocabulary.extra_ids, *shown, file


def _features(run: Resolved, report: StageReport) -> None:
    """Adds a row for each feature of each split that was read, and each length that the run gives it."""
    rows: dict[tuple[object, ...], None] = {}
    for role, sample in run.sampled():
        where = f"{sample.task.name} {sample.split}"
        if not sample.whole:
            report.not_checked.append(
                f"how much of {where} is truncated: its preprocessors need the lengths and cut by themselves"
            )
        for name, feature in sample.task.output_features.items():
            rows[where, name, feature.dtype.name, feature.rank, *_lengths(role, sample, name)] = None
    if rows:
        head = "task and split, feature, type, rank, length, median, longest, truncated, padding, examples read"
        report.fact("features", columns(list(rows), head.split(", ")))


def _lengths(role: DataRole, sample: Sample, feature: str) -> tuple[object, ...]:
    """Returns a feature's length, median and longest values, truncated and padded shares, and the number read."""
    given, seen = (role.dataset.task_feature_lengths or {}).get(feature), len(sample.lengths(feature))
    if not seen:
        return given or "-", "-", "-", "-", "-", seen
    length = given if isinstance(given, int) else sample.longest(feature)
    cut = f"{sample.truncated(feature, length):.0%}" if sample.whole else "?"
    shown = given if given is not None else "longest"
    median = f"{statistics.median(sample.lengths(feature)):g}"
    return shown, median, sample.longest(feature), cut, f"{sample.padding(feature, length):.0%}", seen


def _packing(run: Resolved, report: StageReport) -> None:
    """Adds the number of examples that share a row, for packed data whose examples were read untruncated."""
    rows = []
    for role, sample in run.sampled():
        lengths = {k: n for k, n in (role.dataset.task_feature_lengths or {}).items() if isinstance(n, int)}
        if not role.dataset.pack or run.has_evaluator(role) or not lengths or not sample.examples:
            continue
        if all(len(sample.lengths(name)) == len(sample.examples) for name in lengths):
            gain = len(sample.examples) / packed_rows(sample.examples, lengths)
            rows.append((role.name, sample.task.name, f"{gain:.1f}"))
    if rows:
        report.fact("packing", columns(rows, ("data", "task", "examples in a row")))


def _sources(run: Resolved, slice_: Slice, report: StageReport) -> None:
    rows: dict[tuple[object, ...], None] = {}
    for role, task in run.reads():
        rows[(task.name, role.dataset.split, *_source(run, role, task))] = None
    if rows:
        head = ("task", "split", "source", "files", "examples", "cache", "read from")
        report.fact("sources", columns(list(rows), head))
    report.fact("hosts that read", slice_.hosts)


def _source(run: Resolved, role: DataRole, task: seqio.Task) -> tuple[object, ...]:
    """Returns a source's kind, files, examples, cache and origin."""
    if standin := run.standins.source_of(task):
        return type(task.source).__name__, "-", "?", "-", standin
    split, cached = role.dataset.split, cache_of(task) if task.supports_caching else None
    files, size = files_of(task, split), run.source_size(role, task)
    if cached:
        cache = f"{cached}{'' if role.dataset.use_cached else ', not used'}"
    else:
        cache = "none" if task.supports_caching else "not cacheable"
    return (
        type(task.source).__name__,
        "-" if files is None else len(files),
        "?" if size is None else f"{size:,}",
        cache,
        ", ".join(patterns_of(task, split)) or "-",
    )


def _rates(run: Resolved, report: StageReport) -> None:
    said = set()
    for mixture, split in run.mixtures():
        rates = {task: rate for task, rate in run.rates(mixture, split).items() if isinstance(rate, float)}
        total = sum(rates.values())
        rows = [(task, f"{rate:g}", f"{rate / total:.1%}" if total > 0 else "-") for task, rate in rates.items()]
        table = columns(rows, ("task", "rate", "share"))
        weights = weights_of(mixture)  # a function usually depends on the task's size, which may be generated
        sized = [t.name for t in mixture.tasks if callable(weights.get(t.name)) and run.standins.has_generated_size(t)]
        if sized:
            report.leave_open(
                f"the rates of {mixture.name}: how many examples {', '.join(sized)} has is not known here"
            )
        if (mixture.name, table) not in said:  # another split usually has the same rates
            said.add((mixture.name, table))
            report.fact(f"rates of {mixture.name} {split}", table)


def _metrics(run: Resolved, report: StageReport) -> None:
    for role in run.roles:
        if run.has_evaluator(role):
            rows = [(task.name, _names(task)) for task in run.tasks[role.parameter] if run.is_evaluated(role, task)]
            report.fact(f"{role.name} metrics", columns(rows) or "none")


def _names(task: seqio.Task) -> str:
    """Returns the names of a task's metrics as its module defines them."""
    functions = [getattr(f, "func", f) for f in metric_functions(task)]  # a partial has func
    named = [getattr(f, "__name__", type(f).__name__) for f in functions]
    return ", ".join([*named, *(type(m).__name__ for m in metric_objects(task))])


def resolve(
    config: GinConfig,
    slice_: Slice,
    registrations: Registrations,
    standins: StandIns,
    report: StageReport,
    read_seconds: float = READ_SECONDS,
) -> Resolved:
    """Builds the objects that the config names, and samples its data.

    Args:
      config: the parsed config, at full size.
      slice_: the slice whose hosts are going to read the data.
      registrations: the lines that registered the tasks.
      standins: the replacements for data that is not available here.
      report: receives facts, findings and notes on what could not be judged.
      read_seconds: the time to read each split.

    Raises:
      Exception: the model or a dataset's configuration cannot be built.
    """
    report.fact("mode", config.mode)
    report.not_checked += config.program.clone_doubts
    if not _complete(config, report):
        return Resolved(config, None, standins, registrations)
    gin.finalize()  # which checks, as in T5X, that all macros and references exist, and locks the config
    run = Resolved(config, config.build("model"), standins, registrations, roles_of(config))
    report.fact("model", f"{type(run.model).__name__}, {type(run.model.module).__name__}" if run.model else "none")
    for role in run.roles:
        if not _import(role, config, report):
            return run
        try:
            run.tasks[role.parameter] = tasks_of(role)
        except ValueError as error:
            known = reword([str(error)])
            if known is None or known.code != "SEQ04":  # the rule SEQ04 reports this
                raise
        key = role.key(config, "mixture_or_task_name")
        for asked in standins.take_places(role.dataset, run.tasks.get(role.parameter, ())):
            report.find("RUN09", asked.message, location=config.location(key), fix=asked.fix)
    named = all(role.parameter in run.tasks for role in run.roles)
    if named and all(splits_of(task) for _, task in run.reads()):
        report.attempt(sample_data, run, report, read_seconds)
        report.attempt(call_metrics, run, report)
        report.not_checked += unseen(config)
        report.attempt(describe, run, slice_, report)
        _apply(run, report)
    else:
        _apply(run, report, _OF_NAMES)
        _say_why_not(run, report)
    return run


def _import(role: DataRole, config: GinConfig, report: StageReport) -> bool:
    """Imports the module that a dataset's config names; returns whether that succeeded."""
    if not role.dataset.module:
        return True
    try:
        utils.import_module(role.dataset.module)
    except Exception as error:  # the user's module may raise anything
        log_traceback(error)
        finding = explain(error, report.stage, config)
        key = role.key(config, "module")
        if finding.code == "GIN22":
            finding = dataclasses.replace(
                finding,
                message=f"{role.dataset.module} registers Gin configurables, and T5X imports it only after the config "
                "was parsed",
                fix=f"write `import {role.dataset.module}` in the gin file, and "
                f"{config.owner(key).short if key else 'MIXTURE_OR_TASK_MODULE'} = None",
            )
        if finding.code == "GIN22" or finding.location is None:  # the fix belongs on the line that names the module
            finding = dataclasses.replace(finding, location=config.location(key), binding=key.short if key else None)
        report.end(finding)
        return False
    return True


def _say_why_not(run: Resolved, report: StageReport) -> None:
    """Reports tasks whose splits are not known, unless a rule has already done so.

    Raises:
      Exception: the task's source raises it when asked for its splits.
    """
    for role, task in run.reads():
        if not splits_of(task) and not report.failed:
            remote = out_of_reach(task, role.dataset.split)
            if not remote:
                task.splits  # noqa: B018 (it raises)
            report.not_checked.append(f"the data of {task.name}: {remote[0]} cannot be read here")


def _apply(run: Resolved, report: StageReport, codes: tuple[str, ...] = ()) -> None:
    report.apply((rule for rule in RULES if not codes or rule.code in codes), run, run.config.place)
    report.end_attempts()


def _complete(config: GinConfig, report: StageReport) -> bool:
    """Tells whether every required value is bound; all missing ones are reported together."""
    for key in config.missing():
        (at, name), fix = config.place(key), f"bind {key.short} in the file or with the run"
        report.find("GIN03", f"{name} is required and has no value", location=at, fix=fix, binding=name)
    if "model" not in config.entry_bindings():
        message = f"{config.entry.removeprefix('__main__.')} needs model, and nothing binds it"
        report.find("GIN03", message, fix="include a run config such as t5x/configs/runs/pretrain.gin, or bind it")
    return not report.failed
